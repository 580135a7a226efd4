//! A headless Chromium, by the `DevTools` protocol over two pipes.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Programs that are Chromium, in the order in which they are looked for.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// With `--remote-debugging-pipe` Chromium reads messages from file descriptor 3 and writes them to 4.
const PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 >/dev/null 2>&1"#;
/// The page is ours and on this machine: a container without user namespaces needs no sandbox.
const OPTIONS: [&str; 5] =
    ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"];
/// After so long without a message the browser hangs.
const PATIENCE: Duration = Duration::from_mins(1);

/// The given program, or the first of the usual names on the path.
pub(super) fn find(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(program) = given {
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file());
    found.with_context(|| {
        format!("no Chromium on the path ({}); install one (Debian: chromium) or name it with `--chromium`", NAMES.join(", "))
    })
}

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Vec<u8>>,
    /// Of the page.
    session: Value,
    last: u64,
    /// Events of the page in their order, each with `method` and `params`.
    pub(super) events: Vec<Value>,
    /// The profile.
    _folder: TempDir,
}

impl Browser {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut profile = OsStr::new("--user-data-dir=").to_owned();
        profile.push(folder.path());
        let mut command = Command::new("sh");
        command.args(["-c", PIPES]).arg(program).args(OPTIONS).arg(profile);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot start `sh`")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) =
            (input.context("no standard input")?, output.context("no standard output")?);
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(output).split(0).map_while(Result::ok) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, events) = (Value::Null, Vec::new());
        let mut browser =
            Self { child, input, messages, session, last: 0, events, _folder: folder };
        let shown = || format!("`{}` is not a Chromium that runs here", program.display());
        let target = browser
            .call("Target.createTarget", json!({ "url": "about:blank" }))
            .with_context(shown)?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", attach)?["sessionId"].take();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// What a method of the protocol returns.
    pub(super) fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).context("the browser has ended")?;
        self.input.flush()?;
        loop {
            let bytes = self
                .messages
                .recv_timeout(PATIENCE)
                .with_context(|| format!("no answer of the browser to `{method}`"))?;
            let mut message: Value =
                serde_json::from_slice(&bytes).context("a message of the browser")?;
            if message["id"] != self.last {
                self.events.push(message);
            } else if message["error"].is_null() {
                return Ok(message["result"].take());
            } else {
                bail!("`{method}`: {}", message["error"]["message"]);
            }
        }
    }

    /// The value of an expression, which may be a promise, in the page.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut found = self.call("Runtime.evaluate", params)?;
        if !found["exceptionDetails"].is_null() {
            bail!("`{expression}`: {}", found["exceptionDetails"]);
        }
        Ok(found["result"]["value"].take())
    }

    /// Waits until an expression is true in the page.
    pub(super) fn until(&mut self, condition: &str) -> Result<()> {
        let seconds = PATIENCE.as_secs();
        let expression = format!(
            "new Promise((done) => {{ const end = Date.now() + {seconds}000; const look = () => {{ \
             const so = Boolean({condition}); so || Date.now() > end ? done(so) : setTimeout(look, 20); }}; look(); }})"
        );
        if self.value(&expression)? != true {
            let shown = self.value("document.body.innerText")?;
            bail!(
                "after {seconds} s `{condition}` is not so; the page shows:\n{}",
                shown.as_str().unwrap_or_default()
            );
        }
        Ok(())
    }

    pub(super) fn open(&mut self, address: &str) -> Result<()> {
        let found = self.call("Page.navigate", json!({ "url": address }))?;
        if let Some(error) = found["errorText"].as_str() {
            bail!("`{address}`: {error}");
        }
        self.until("document.readyState === 'complete'")
    }

    /// Types a text where the focus is.
    pub(super) fn write(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text })).map(drop)
    }

    /// Presses a key, by its name and its code on Windows.
    pub(super) fn press(&mut self, (key, code): (&str, u32)) -> Result<()> {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
            self.call("Input.dispatchKeyEvent", params)?;
        }
        Ok(())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with its pipes, and before its profile goes.
        let _ = self.call("Browser.close", json!({}));
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
