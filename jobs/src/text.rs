//! Text of strangers that people read.

/// Whether a character shows as itself. A control character moves a terminal's cursor; one that sets the direction of
/// writing, or has no width, lets a text show as another.
#[must_use]
pub fn is_shown(c: char) -> bool {
    let is_hidden = matches!(c,
        '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}');
    !c.is_control() && !is_hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_turns_or_hides_a_text_is_not_shown_and_every_script_is() {
        for c in "\u{0}\u{1b}\n\u{7f}\u{9b}\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}".chars() {
            assert!(!is_shown(c), "{c:?}");
        }
        assert!("kernel<float>(ä, π, 核, مرحبا, 🚀) \u{a0}".chars().all(is_shown));
    }
}
