//! Who looks at the page: its cookies, its session, and whether a form is its own.
//!
//! A cookie holds a random secret. Of a session's, the database has a digest with its owner and its end, so it outlives a restart,
//! is known to every API on that database, and is over for good when it is signed out. A form counts only with both: a token that
//! is derived from the secret, which no other page can read, and an `Origin` that is this service.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use jobs::browser::BrowserSecret;
use jobs::ids::Owner;

use crate::app::App;
use crate::error::ApiError;
use crate::retry::patiently;

/// How long a session lasts: a working day. `KernelBot` is not asked again meanwhile, since the id is not kept.
pub const SESSION_LIFETIME: Duration = Duration::from_hours(12);
/// The cookie of who is signed in.
const SESSION_COOKIE: &str = "ncu_session";
/// The cookie of who is not: the form to sign in needs a token as well.
const VISIT_COOKIE: &str = "ncu_visit";
/// How long the database may take to tell whose a session is.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who looks at the page.
#[derive(Debug)]
pub struct Visitor {
    /// Whose jobs are shown; `None` while nobody is signed in.
    pub owner: Option<Owner>,
    /// What the tokens of the forms are derived from.
    pub secret: BrowserSecret,
    /// Whether the browser has to be given the secret first.
    is_new: bool,
}

impl Visitor {
    /// Whether a request carries what may be a session.
    #[must_use]
    pub fn has_session(headers: &HeaderMap) -> bool {
        cookie(headers, SESSION_COOKIE).is_some()
    }

    /// Who sent a request.
    pub async fn of(app: &App, headers: &HeaderMap) -> Result<Self, ApiError> {
        if let Some(secret) = cookie(headers, SESSION_COOKIE) {
            let key = secret.session_key();
            let patience = PATIENCE.min(app.database_patience);
            if let Some(owner) = patiently(patience, || app.queue.session_owner(&key)).await? {
                return Ok(Self { owner: Some(owner), secret, is_new: false });
            }
        }
        Ok(Self::without_session(headers))
    }

    /// The same, taken for somebody who is not signed in.
    #[must_use]
    pub fn without_session(headers: &HeaderMap) -> Self {
        let known = cookie(headers, VISIT_COOKIE);
        let is_new = known.is_none();
        Self { owner: None, secret: known.unwrap_or_else(BrowserSecret::random), is_new }
    }

    /// Lets a form count only if a page of this service has sent it, in the browser that it was made for.
    pub fn must_have_sent(&self, headers: &HeaderMap, token: &str) -> Result<(), ApiError> {
        let is_own = is_from_here(headers) && self.secret.is_form_token(token);
        if is_own { Ok(()) } else { Err(ApiError::ForeignForm) }
    }

    /// The cookie that a browser needs for the forms, if it has none.
    #[must_use]
    pub fn new_cookie(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        self.is_new.then(|| set_cookie(VISIT_COOKIE, self.secret.expose(), None, is_https(headers)))
    }
}

/// The cookie of a session that begins.
#[must_use]
pub fn session_cookie(secret: &BrowserSecret, headers: &HeaderMap) -> HeaderValue {
    set_cookie(SESSION_COOKIE, secret.expose(), Some(SESSION_LIFETIME), is_https(headers))
}

/// Takes that cookie away.
#[must_use]
pub fn no_session_cookie(headers: &HeaderMap) -> HeaderValue {
    set_cookie(SESSION_COOKIE, "", Some(Duration::ZERO), is_https(headers))
}

/// No script reads it, and no request that another site has caused carries it.
fn set_cookie(name: &str, value: &str, lifetime: Option<Duration>, is_secure: bool) -> HeaderValue {
    let age = lifetime.map_or_else(String::new, |lifetime| format!("; Max-Age={}", lifetime.as_secs()));
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{age}{secure}");
    // All of it is visible ASCII; were it not, nobody would be signed in.
    let mut value = HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// The secret in a cookie. What can be none of ours counts as no cookie, and so do two of one name.
fn cookie(headers: &HeaderMap, name: &str) -> Option<BrowserSecret> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = all.flat_map(|value| value.split(';')).filter_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        (key == name).then_some(value)
    });
    let value = values.next()?;
    if values.next().is_some() { None } else { BrowserSecret::parse(value) }
}

/// Whether the page that has sent a form is this service's. Behind a proxy the browser's own name for it may stand in another
/// header; no page can make a browser set either.
fn is_from_here(headers: &HeaderMap) -> bool {
    let Some((scheme, origin)) = text(headers, "origin").and_then(|origin| origin.split_once("://")) else {
        return false;
    };
    let mut hosts = ["host", "x-forwarded-host"].into_iter().filter_map(|name| text(headers, name));
    matches!(scheme, "http" | "https") && hosts.any(|host| host.eq_ignore_ascii_case(origin))
}

/// Whether the browser speaks TLS, be it with a proxy in front of this.
fn is_https(headers: &HeaderMap) -> bool {
    text(headers, "x-forwarded-proto").is_some_and(|proto| proto.eq_ignore_ascii_case("https"))
        || text(headers, "origin").is_some_and(|origin| origin.starts_with("https://"))
}

/// The text of a header of which there is one.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_form_is_from_here_only_with_the_origin_that_the_browser_calls_this_service() {
        let here = [("host", "ncu.example:8765"), ("origin", "http://ncu.example:8765")];
        assert!(is_from_here(&headers(&here)));
        let proxied =
            [("host", "10.0.0.1:8765"), ("x-forwarded-host", "ncu.example"), ("origin", "https://ncu.example")];
        assert!(is_from_here(&headers(&proxied)));
        for origin in [
            "null",
            "http://evil.example",
            "http://ncu.example",
            "http://ncu.example:8765.evil.example",
            "ncu.example:8765",
        ] {
            assert!(!is_from_here(&headers(&[here[0], ("origin", origin)])), "{origin}");
        }
        assert!(!is_from_here(&headers(&here[..1])));
        assert!(!is_from_here(&headers(&[here[0], here[1], here[1]])) && !is_from_here(&headers(&here[1..])));
    }

    #[test]
    fn a_cookie_is_hidden_from_scripts_and_other_sites_and_secure_behind_tls() {
        let secret = BrowserSecret::random();
        let plain = session_cookie(&secret, &HeaderMap::new());
        let plain = plain.to_str().unwrap();
        assert!(plain.contains("; HttpOnly; SameSite=Strict; Max-Age=43200") && !plain.contains("Secure"), "{plain}");
        for tls in [("x-forwarded-proto", "https"), ("origin", "https://ncu.example")] {
            assert!(session_cookie(&secret, &headers(&[tls])).to_str().unwrap().ends_with("; Secure"));
        }
        let sent = format!("a=b; ncu_session={}; c", secret.expose());
        assert_eq!(cookie(&headers(&[("cookie", &sent)]), SESSION_COOKIE), Some(secret));
        assert_eq!(cookie(&headers(&[("cookie", &format!("{sent}; ncu_session=x"))]), SESSION_COOKIE), None);
    }
}
