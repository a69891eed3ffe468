//! The pages that a browser shows: one self-contained file each, without a script and without a word to the network.
//!
//! What a page shows was written by strangers: kernel names, findings, file names. Everything goes through `maud`, which escapes
//! it; nothing here builds markup from text.

mod charts;
mod compare;
mod report;
mod sections;

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub use compare::comparison;
pub use report::report;

/// The only styles that there are. There is no font and no picture to load.
const STYLE: &str = include_str!("style.css");

/// What a browser may do with a page: show it, with the styles that stand in it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox";

/// A whole page.
fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // The same from a disk, where no header says it. A policy in a page knows neither frames nor the sandbox.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

#[cfg(any(test, fuzzing))]
mod soundness;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
pub(crate) use soundness::is_sound;
