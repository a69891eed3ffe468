//! Plays a target's corpus, and seeded mutations of it, without a fuzzer: every test run does it. The tests of several
//! crates include this file.

use std::path::Path;

/// Mutations of the corpus that are played.
const MUTATIONS: usize = 2_000;
/// Longest input, in bytes.
const MAX_BYTES: usize = 16 << 10;

/// Plays the corpus of a target and mutations of it, always the same ones.
pub fn replay(target: &str, play: impl Fn(&[u8])) {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|parent| parent.join("jobs/fuzz/corpus").join(target));
    let folder = folder.into_iter().find(|folder| folder.is_dir()).expect("the corpus of the target");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert!(!corpus.is_empty());
    for input in &corpus {
        play(input);
    }
    play(b"");
    let mut random = Random(1);
    for _ in 0..MUTATIONS {
        let mut input = random.one_of(&corpus).clone();
        for _ in 0..=random.below(4) {
            let other = random.one_of(&corpus);
            mutate(&mut input, other, &mut random);
        }
        input.truncate(MAX_BYTES);
        play(&input);
    }
}

/// Changes an input a little: a byte, a piece, a number, a word that parsers dislike.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    const WORDS: [&[u8]; 14] = [
        b"\n",
        b"\0",
        b"\"",
        b",",
        b"{",
        b"]",
        b"\xff",
        b"\r\n",
        b"-1",
        b"1e999",
        b"18446744073709551616",
        b"nan",
        b"../",
        b"\x1b[31m",
    ];
    let at = random.below(input.len() + 1);
    let end = at + random.below(input.len() - at + 1);
    match random.below(6) {
        0 if at < input.len() => input[at] = random.next().to_le_bytes()[0],
        1 => drop(input.drain(at..end.min(at + 64))),
        2 => {
            let piece = input[at..end.min(at + 256)].to_vec();
            drop(input.splice(at..at, piece));
        }
        3 => {
            let from = random.below(other.len() + 1);
            drop(input.splice(at..end, other[from..].iter().copied()));
        }
        4 => input.truncate(at),
        _ => drop(input.splice(at..at, random.one_of(&WORDS).iter().copied())),
    }
}

/// `SplitMix64`: the same numbers on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
