//! Which requests are answered: by the name that they give the server, and by their key.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use subtle::ConstantTimeEq;

use super::problem::{Code, Problem};

/// Paths that need no key: the page, which has a field for one, and the probes of supervisors.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];

/// The checks that every request passes before its path is looked at.
#[derive(Debug)]
pub(super) struct Access {
    /// Where the server listens.
    address: SocketAddr,
    /// Names of the server beside its addresses and `localhost`.
    names: Vec<String>,
    key: Option<String>,
}

impl Access {
    /// A server at `address` that is also called `names`, and answers requests with `key` alone if there is one.
    pub(super) fn new(address: SocketAddr, names: Vec<String>, key: Option<String>) -> Self {
        Self { address, names, key }
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether other machines can ask without a key.
    pub(super) fn is_public(&self) -> bool {
        self.key.is_none() && !self.address.ip().to_canonical().is_loopback()
    }

    /// [`Code::HostHeader`] without exactly one readable `Host`, [`Code::WrongHost`] for one that is another
    /// server's, [`Code::Unauthorized`] without the key on a path that needs it.
    pub(super) fn check(&self, request: &Request) -> Result<(), Problem> {
        let wrong = |found: &str| {
            let message =
                format!("expected one header `Host` with a name or an address, found {found}");
            Problem::new(Code::HostHeader, message)
        };
        let mut hosts = request.headers().get_all(HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            let found = request.headers().get_all(HOST).iter().count();
            return Err(wrong(&format!("{found} of them")));
        };
        let text = String::from_utf8_lossy(host.as_bytes());
        let unreadable = || wrong(&format!("`{text}`"));
        let parsed: Authority = text.parse().map_err(|_| unreadable())?;
        if parsed.as_str().contains('@') {
            return Err(unreadable());
        }
        // A request may name the server in its first line too.
        for named in std::iter::once(&parsed).chain(request.uri().authority()) {
            if !self.is_own(named.host()) {
                let found = named.host();
                let message = format!(
                    "`{found}` is not known as a name of this server: `--host-name` adds one"
                );
                return Err(Problem::new(Code::WrongHost, message));
            }
        }
        if OPEN.contains(&request.uri().path()) || self.has_key(request) {
            Ok(())
        } else {
            let message =
                "expected the header `Authorization: Bearer KEY` with the key of this server";
            Err(Problem::new(Code::Unauthorized, message))
        }
    }

    /// Whether `host` means this server. A browser resolves the names of other sites to any address that these sites
    /// choose (DNS rebinding), so a name must be known. An address cannot be forged.
    fn is_own(&self, host: &str) -> bool {
        let name = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let is_own_address = name.parse().is_ok_and(|address: IpAddr| {
            let (address, own) = (address.to_canonical(), self.address.ip().to_canonical());
            address.is_loopback() || own.is_unspecified() || address == own
        });
        let mut names = std::iter::once("localhost").chain(self.names.iter().map(String::as_str));
        is_own_address || names.any(|own| own.eq_ignore_ascii_case(name))
    }

    fn has_key(&self, request: &Request) -> bool {
        let Some(key) = &self.key else { return true };
        let given = request.headers().get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
        let Some((scheme, token)) = given.split_at_checked("Bearer ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(token.ct_eq(key.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use axum::body::Body;

    use super::*;

    fn request(path: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    /// The code of the answer to a request with this `Host` for a server at `address`.
    fn asked(address: &str, host: &str) -> Result<(), Code> {
        let names = vec!["models.example".to_owned()];
        let access = Access::new(address.parse().unwrap(), names, None);
        access.check(&request("/v1/model", &[("host", host)])).map_err(|problem| problem.code)
    }

    #[test]
    fn a_request_must_name_this_server() {
        let own = "127.0.0.1:8080 127.0.0.1 127.9.9.9 [::1]:8080 localhost:80 LOCALHOST. Models.Example:443";
        for host in own.split(' ') {
            assert_eq!(asked("127.0.0.1:8080", host), Ok(()), "{host}");
            assert_eq!(asked("[::1]:8080", host), Ok(()), "{host}");
        }
        let others = "evil.example:8080 localhost.evil.example 10.0.0.1 models.example.org 127.1";
        for host in others.split(' ') {
            assert_eq!(asked("127.0.0.1:8080", host), Err(Code::WrongHost), "{host}");
        }
        for host in ["", "a b", "user@127.0.0.1", "127.0.0.1:8080/", "127.0.0.1, 127.0.0.1"] {
            assert_eq!(asked("127.0.0.1:8080", host), Err(Code::HostHeader), "{host}");
        }
        // The address that it listens at, and every address where it listens at all of them; never a name.
        assert_eq!(asked("10.0.0.1:80", "10.0.0.1"), Ok(()));
        assert_eq!(asked("10.0.0.1:80", "10.0.0.2"), Err(Code::WrongHost));
        assert_eq!(asked("[::]:80", "10.0.0.2"), Ok(()));
        assert_eq!(asked("0.0.0.0:80", "evil.example"), Err(Code::WrongHost));

        let access = Access::new("127.0.0.1:80".parse().unwrap(), Vec::new(), None);
        let code = |request: &Request| access.check(request).map_err(|problem| problem.code);
        assert_eq!(code(&request("/", &[])), Err(Code::HostHeader));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(code(&request("/", &twice)), Err(Code::HostHeader));
        let absolute = request("http://evil.example/v1/model", &[("host", "localhost")]);
        assert_eq!(code(&absolute), Err(Code::WrongHost));
    }

    #[test]
    fn a_key_is_needed_but_for_the_page_and_the_probes() {
        let (address, key) = ("127.0.0.1:80".parse().unwrap(), Some("s3cret".to_owned()));
        let access = Access::new(address, Vec::new(), key);
        let ask = |path: &str, value: Option<&str>| {
            let mut headers = vec![("host", "localhost")];
            headers.extend(value.map(|value| ("authorization", value)));
            access.check(&request(path, &headers)).map_err(|problem| problem.code)
        };
        for path in OPEN {
            assert_eq!(ask(path, None), Ok(()), "{path}");
        }
        for path in ["/v1/classify", "/v1/model", "/openapi.json", "/metrics", "/nowhere", "//"] {
            assert_eq!(ask(path, None), Err(Code::Unauthorized), "{path}");
            assert_eq!(ask(path, Some("Bearer s3cret")), Ok(()), "{path}");
        }
        assert_eq!(ask("/metrics", Some("bearer s3cret")), Ok(()));
        let wrong = "|Bearer|Bearer |Bearer s3cre|Bearer s3cret |Bearer S3cret|Basic s3cret|s3cret";
        for value in wrong.split('|') {
            assert_eq!(ask("/metrics", Some(value)), Err(Code::Unauthorized), "{value:?}");
        }
    }

    #[test]
    fn a_server_is_public_beyond_loopback_without_a_key() {
        let is_public = |address: &str, key: Option<&str>| {
            let key = key.map(str::to_owned);
            Access::new(address.parse().unwrap(), Vec::new(), key).is_public()
        };
        for address in ["127.0.0.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "127.8.8.8:80"] {
            assert!(!is_public(address, None), "{address}");
        }
        for address in ["0.0.0.0:80", "[::]:80", "192.168.0.3:80"] {
            assert!(is_public(address, None) && !is_public(address, Some("a")), "{address}");
        }
    }
}
