//! Which requests are answered: by the name that they give the server, and by their key.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use subtle::ConstantTimeEq;

use super::problem::{Code, Problem};

/// Paths that need no key: the page, which has a field for one, and the probes of supervisors.
const OPEN: [&str; 3] = ["/", "/healthz", "/readyz"];
/// Paths that supervisors ask by any name, or by none: they say nothing of texts.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The checks that every request passes before its path is looked at.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) address: SocketAddr,
    /// Names of the server beside its addresses and `localhost`.
    pub(super) names: Vec<String>,
    pub(super) key: Option<String>,
    /// Other sites whose pages may send requests.
    pub(super) origins: Vec<String>,
}

impl Access {
    /// True if other machines can ask without a key.
    pub(crate) fn is_public(&self) -> bool {
        self.key.is_none() && !self.address.ip().to_canonical().is_loopback()
    }

    /// [`Code::Unauthorized`] without the key on a path that needs it. Of a server without a key, [`Code::UnreadableRequest`] without
    /// exactly one readable `Host` and [`Code::WrongHost`] for one that is another server's, but for probes: a page that reaches
    /// the server by the name of its site has no key.
    pub(super) fn check(&self, request: &Request) -> Result<(), Problem> {
        let path = request.uri().path();
        if self.key.is_none() && !PROBES.contains(&path) {
            self.check_host(request)?;
        }
        if OPEN.contains(&path) || self.has_key(request) {
            return Ok(());
        }
        let message = "expected the header `Authorization: Bearer KEY` with the key of this server";
        Err(Problem::new(Code::Unauthorized, message))
    }

    fn check_host(&self, request: &Request) -> Result<(), Problem> {
        let wrong = |found: &str| {
            let message =
                format!("expected one header `Host` with a name or an address, found {found}");
            Problem::new(Code::UnreadableRequest, message)
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
        Ok(())
    }

    /// True if `host` means this server. A browser resolves the names of other sites to any address that these sites
    /// choose (DNS rebinding), so a name must be known. An address cannot be forged.
    fn is_own(&self, host: &str) -> bool {
        let name = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
        let is_own_address = name.parse().is_ok_and(|given: IpAddr| {
            let address = given.to_canonical();
            let own = self.address.ip().to_canonical();
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

    /// True if a server at an address, with this key, is public; and the code of its answer to a request for `path` with
    /// `headers`.
    fn asked(
        address: &str,
        key: Option<&str>,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (bool, Result<(), Code>) {
        let address = address.parse().unwrap();
        let key = key.map(str::to_owned);
        let access =
            Access { address, names: vec!["models.example".to_owned()], key, origins: Vec::new() };
        let request = Request::builder().uri(path);
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Body::empty()).unwrap();
        (access.is_public(), access.check(&request).map_err(|problem| problem.code))
    }

    #[test]
    fn a_request_must_name_this_server() {
        let own = Ok(());
        let wrong = Err(Code::WrongHost);
        let no = Err(Code::UnreadableRequest);
        for (address, public, expected, hosts) in [
            (
                "127.0.0.1:8080",
                false,
                own,
                "127.0.0.1:8080 127.0.0.1 127.9.9.9 [::1]:8080 localhost:80",
            ),
            ("[::1]:8080", false, own, "127.0.0.1 [::1] LOCALHOST. Models.Example:443"),
            ("[::ffff:127.0.0.1]:80", false, own, "localhost"),
            ("127.0.0.1:80", false, wrong, "evil.example:80 localhost.evil.example 10.0.0.1 127.1"),
            ("127.0.0.1:80", false, wrong, "models.example.org"),
            ("127.0.0.1:80", false, no, "user@127.0.0.1 127.0.0.1:80/"),
            // The address that it listens at, and every address where it listens at all of them; never a name.
            ("10.0.0.1:80", true, own, "10.0.0.1"),
            ("10.0.0.1:80", true, wrong, "10.0.0.2"),
            ("[::]:80", true, own, "10.0.0.2"),
            ("0.0.0.0:80", true, wrong, "evil.example"),
        ] {
            for host in hosts.split(' ') {
                let found = asked(address, None, "/v1/model", &[("host", host)]);
                assert_eq!(found, (public, expected), "{host} at {address}");
            }
        }
        let local = |path: &str, hosts: &[&str]| {
            let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            asked("127.0.0.1:80", None, path, &headers).1
        };
        for hosts in [&[][..], &[""], &["a b"], &["::1, ::1"], &["localhost", "localhost"]] {
            assert_eq!(local("/", hosts), no, "{hosts:?}");
        }
        assert_eq!(local("http://evil.example/v1/model", &["localhost"]), wrong);
        // Probes, whatever they call the server.
        for path in PROBES {
            for hosts in [&[][..], &["10.1.2.3:80"], &["lrvd.default.svc"], &["a b"]] {
                assert_eq!(local(path, hosts), own, "{path} {hosts:?}");
            }
        }
        assert_eq!(local("/healthz/", &["evil.example"]), wrong);
    }

    #[test]
    fn a_key_is_needed_but_for_the_page_and_the_probes() {
        let ask = |path: &str, value: &str| {
            let headers = [("host", "localhost"), ("authorization", value)];
            asked("0.0.0.0:80", Some("s3cret"), path, &headers)
        };
        let own = (false, Ok(()));
        let wrong = (false, Err(Code::Unauthorized));
        for path in OPEN {
            assert_eq!(ask(path, ""), own, "{path}");
        }
        for path in ["/v1/classify", "/v1/model", "/openapi.json", "/metrics", "/nowhere", "//"] {
            assert_eq!((ask(path, ""), ask(path, "Bearer s3cret")), (wrong, own), "{path}");
        }
        assert_eq!(ask("/metrics", "bearer s3cret"), own);
        // With a key the name of the server is the client's own affair.
        for hosts in [&[][..], &[("host", "lrvd")], &[("host", "evil.example"), ("host", "b")]] {
            let keyed = [hosts, &[("authorization", "Bearer s3cret")]].concat();
            let ask = |headers: &[_]| asked("0.0.0.0:80", Some("s3cret"), "/v1/model", headers);
            assert_eq!((ask(hosts), ask(&keyed)), (wrong, own), "{hosts:?}");
        }
        let others = "Bearer|Bearer |Bearer s3cre|Bearer s3cret |Bearer S3cret|Basic s3cret|s3cret";
        for value in others.split('|') {
            assert_eq!(ask("/metrics", value), wrong, "{value:?}");
        }
    }
}
