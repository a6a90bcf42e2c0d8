//! A real browser: Chromium, led by its own driver (W3C WebDriver 2, 2024).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::process::{self, Running, eventually};

const PATIENCE: Duration = Duration::from_secs(60);
/// Keys that are no characters, as the standard numbers them.
pub const TAB: char = '\u{e004}';
pub const ENTER: char = '\u{e007}';
pub const ESCAPE: char = '\u{e00c}';
pub const RIGHT: char = '\u{e014}';

/// Where its programs run: makes a command of words.
pub type Place<'a> = dyn Fn(&[&str]) -> Command + 'a;

/// A browser with one window. It ends with the value.
pub struct WebDriver<'a> {
    place: &'a Place<'a>,
    driver: Running,
    base: String,
    session: String,
    room: PathBuf,
}

impl<'a> WebDriver<'a> {
    /// Starts it; `room` is a directory for its files, `port` one that nobody has.
    ///
    /// # Errors
    /// There is no Chromium, or it does not begin.
    pub fn start(place: &'a Place<'a>, room: &Path, port: u16, size: (u32, u32)) -> Result<Self> {
        fs::create_dir_all(room)?;
        let option = format!("--port={port}");
        let log = format!("--log-path={}", room.join("chromedriver.log").display());
        let driver = Running::spawn(&mut place(&["chromedriver", &option, &log]))?;
        let mut browser = Self {
            place,
            driver,
            base: format!("http://127.0.0.1:{port}"),
            session: String::new(),
            room: room.to_owned(),
        };
        eventually(PATIENCE, "the driver is ready", || {
            let told = browser.ask("GET", "/status", None);
            Ok(told.ok().filter(|told| told["ready"] == true))
        })?;
        let profile = format!("--user-data-dir={}", room.join("profile").display());
        let window = format!("--window-size={},{}", size.0, size.1);
        // Root's Chromium has no sandbox, and a container's /dev/shm may be small.
        let arguments = json!([
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--lang=en-GB",
            profile,
            window,
        ]);
        let options = json!({"args": arguments, "binary": "/usr/bin/chromium"});
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let told = browser.ask("POST", "/session", Some(&wanted))?;
        let id = told["sessionId"].as_str().context("A session has an id")?;
        browser.session = format!("/session/{id}");
        Ok(browser)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let url = format!("{}{path}", self.base);
        let file = self.room.join("request.json");
        let data = format!("@{}", file.display());
        let mut words = vec![
            "curl",
            "--silent",
            "--show-error",
            "--max-time",
            "60",
            "-X",
            method,
        ];
        if let Some(body) = body {
            fs::write(&file, body.to_string())?;
            words.extend([
                "--header",
                "Content-Type: application/json",
                "--data-binary",
                &data,
            ]);
        }
        words.push(&url);
        let text = process::succeed(&mut (self.place)(&words), PATIENCE)?;
        let told: Value = serde_json::from_str(&text).context("The driver speaks JSON")?;
        let value = &told["value"];
        if let Some(error) = value["error"].as_str() {
            bail!("The browser: {error}: {}", value["message"]);
        }
        Ok(value.clone())
    }

    fn in_session(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", &format!("{}{path}", self.session), Some(body))
    }

    /// Opens a page and waits until it is loaded.
    ///
    /// # Errors
    /// It does not load.
    pub fn go(&self, url: &str) -> Result<()> {
        self.in_session("/url", &json!({"url": url})).map(drop)
    }

    /// Runs a function's body in the page; what it returns. A promise is waited for.
    ///
    /// # Errors
    /// It throws.
    pub fn run(&self, script: &str, arguments: &Value) -> Result<Value> {
        self.in_session(
            "/execute/sync",
            &json!({"script": script, "args": arguments}),
        )
    }

    /// Waits until an expression of the page is true.
    ///
    /// # Errors
    /// It does not become so.
    pub fn until(&self, expression: &str) -> Result<()> {
        let script = format!("return Boolean({expression})");
        eventually(PATIENCE, expression, || {
            Ok((self.run(&script, &json!([]))? == true).then_some(()))
        })
    }

    /// The middle of the first element that a selector finds, as it is seen in the window.
    ///
    /// # Errors
    /// There is none.
    pub fn middle(&self, selector: &str) -> Result<(f64, f64)> {
        let script = "const found = document.querySelector(arguments[0]);
            if (!found) return null;
            found.scrollIntoView({ block: 'nearest' });
            const box = found.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2];";
        let at = self.run(script, &json!([selector]))?;
        match (at[0].as_f64(), at[1].as_f64()) {
            (Some(x), Some(y)) => Ok((x, y)),
            _ => bail!("The page has no {selector}"),
        }
    }

    /// A click of the first button.
    ///
    /// # Errors
    /// There is no such element.
    pub fn click(&self, selector: &str) -> Result<()> {
        let at = self.middle(selector)?;
        self.pointer(at, None)
    }

    /// Drags the one to the other, in steps, as a hand does.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn drag(&self, from: &str, to: &str) -> Result<()> {
        let (start, end) = (self.middle(from)?, self.middle(to)?);
        self.pointer(start, Some(end))
    }

    fn pointer(&self, from: (f64, f64), to: Option<(f64, f64)>) -> Result<()> {
        let at = |(x, y): (f64, f64), duration: u32| {
            json!({"type": "pointerMove", "origin": "viewport", "duration": duration,
                   "x": x.round(), "y": y.round()})
        };
        let mut actions = vec![at(from, 0), json!({"type": "pointerDown", "button": 0})];
        actions.extend(to.map(|to| at(to, 300)));
        actions.push(json!({"type": "pointerUp", "button": 0}));
        let source = json!({"type": "pointer", "id": "mouse", "actions": actions});
        self.in_session("/actions", &json!({"actions": [source]}))
            .map(drop)
    }

    /// Presses keys, one after the other.
    ///
    /// # Errors
    /// The browser has gone.
    pub fn keys(&self, keys: &[char]) -> Result<()> {
        let both = |key: &char| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        };
        let actions: Vec<Value> = keys.iter().flat_map(both).collect();
        let source = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.in_session("/actions", &json!({"actions": [source]}))
            .map(drop)
    }

    /// Tabs on until the focus is on what a selector finds.
    ///
    /// # Errors
    /// It is never there.
    pub fn tab_to(&self, selector: &str) -> Result<()> {
        for _ in 0..60 {
            let script = "return document.activeElement.matches(arguments[0])";
            if self.run(script, &json!([selector]))? == true {
                return Ok(());
            }
            self.keys(&[TAB])?;
        }
        bail!("The tab key never comes to {selector}")
    }

    /// Gives the window another size.
    ///
    /// # Errors
    /// The browser has gone.
    pub fn resize(&self, (width, height): (u32, u32)) -> Result<()> {
        let size = json!({"width": width, "height": height});
        self.in_session("/window/rect", &size).map(drop)
    }

    /// Lets the system prefer this theme (`light`, `dark`) from now on.
    ///
    /// # Errors
    /// The browser has gone.
    pub fn system_theme(&self, theme: &str) -> Result<()> {
        let feature = json!({"name": "prefers-color-scheme", "value": theme});
        let order = json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}});
        self.in_session("/goog/cdp/execute", &order).map(drop)
    }

    /// Writes what the window shows to a file, as PNG.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn screenshot(&self, file: &Path) -> Result<()> {
        let path = format!("{}/screenshot", self.session);
        let told = self.ask("GET", &path, None)?;
        let text = file.with_extension("base64");
        fs::write(&text, told.as_str().context("A picture is text")?)?;
        let output = Command::new("base64").arg("-d").arg(&text).output()?;
        ensure!(output.status.success(), "The picture cannot be decoded");
        fs::remove_file(&text)?;
        Ok(fs::write(file, output.stdout)?)
    }
}

impl Drop for WebDriver<'_> {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.ask("DELETE", &self.session.clone(), None);
        }
        self.driver.signal(Signal::SIGTERM);
    }
}
