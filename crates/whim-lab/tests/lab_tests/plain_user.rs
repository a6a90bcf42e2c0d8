//! A lab of a user without any right but that to make user namespaces.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use whim_lab::{Lab, LabError, LinkSettings, NodeState};

use crate::support::{needs_root, options};

/// Set for the half of the test that runs as the plain user: the helper's path.
const HELPER: &str = "WHIM_LAB_TEST_PLAIN_HELPER";

#[test]
fn a_plain_user_has_labs_too() {
    needs_root!();
    // Copies, because the build directory may be closed to others.
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(directory.path());
    let copy = |from: &Path, name: &str| {
        let to = directory.path().join(name);
        std::fs::copy(from, &to).unwrap();
        open(&to);
        to
    };
    let helper = copy(&crate::support::helper(), "helper");
    let test = copy(&std::env::current_exe().unwrap(), "test");
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(test)
        .args([
            "--exact",
            "--nocapture",
            "lab_tests::plain_user::the_half_without_rights",
        ])
        .current_dir("/")
        .env(HELPER, helper)
        .env("HOME", "/")
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    print!("{said}");
    assert!(output.status.success(), "{said}");
    assert!(!Path::new("/tmp/whim-lab-65534").exists());
}

#[test]
fn the_half_without_rights() {
    let Some(helper) = std::env::var_os(HELPER) else {
        return;
    };
    let mut wanted = options("plain");
    wanted.nodes = 2;
    wanted.helper = Some(helper.into());
    let lab = match Lab::up(&wanted) {
        Ok(lab) => lab,
        Err(e) => {
            // Some machines allow plain users no user namespaces; then the answer has to say so.
            assert!(e.to_string().contains("user namespaces"), "{e}");
            eprintln!("SKIPPED: {e}");
            return;
        }
    };
    let sh = |node: &str, script: &str| {
        let mut command = lab.command(node, None, "sh").unwrap();
        let output = command.args(["-c", script]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
            .trim()
            .to_owned()
    };
    assert_eq!(
        sh(
            "n2",
            "hostname; id -u; head -1 /etc/whim-node | cut -d' ' -f2"
        ),
        "n2\n0\nn2"
    );
    // A name of this test's own: the machine may have files of any other.
    let name = format!("whim-plain-{}", std::process::id());
    let touch =
        format!("touch /run/{name} /tmp/{name} /var/lib/whim/{name}; ls /run/{name} /var/lib/whim");
    let listed = format!("/run/{name}\n\n/var/lib/whim:\n{name}");
    assert_eq!(sh("n1", &touch), listed);
    for directory in ["/run", "/tmp"] {
        assert!(!Path::new(directory).join(&name).exists(), "{directory}");
    }
    assert!(sh("n1", "cat /proc/self/timens_offsets").contains(" 1000 "));
    let knock = "timeout 2 bash -c 'exec 3<>/dev/tcp/10.99.0.2/9' 2> /dev/null; echo $?";
    assert_eq!(sh("n1", knock), "1", "refused");
    lab.cut("n1", "n2").unwrap();
    assert_eq!(sh("n1", knock), "124", "silence");
    lab.heal("n1", "n2").unwrap();
    assert_eq!(sh("n1", knock), "1", "refused again");
    lab.pause("n1").unwrap();
    assert_eq!(lab.status().unwrap().nodes[0].state, NodeState::Paused);
    lab.resume("n1").unwrap();
    assert_eq!(sh("n1", "hostname"), "n1");
    lab.kill("n1").unwrap();
    lab.start("n1").unwrap();
    assert_eq!(sh("n1", "hostname"), "n1");
    let delay = LinkSettings {
        delay_us: 1000,
        ..LinkSettings::default()
    };
    match lab.link("n1", "n2", &delay) {
        Ok(()) => assert_eq!(sh("n1", knock), "1"),
        Err(e) => assert!(e.to_string().contains("/dev/net/tun"), "{e}"),
    }
    let mut other = lab.command("n1", Some("nobody"), "true").unwrap();
    assert_eq!(other.output().unwrap().status.code(), Some(125));
    Lab::down(lab.name()).unwrap();
    assert!(!Lab::list().unwrap().contains(&wanted.name));

    wanted.cpu = vec![0.5];
    match Lab::up(&wanted) {
        Ok(lab) => Lab::down(lab.name()).unwrap(),
        Err(LabError::Cgroup(e)) => assert!(e.to_string().contains("run as root"), "{e}"),
        Err(e) => panic!("{e}"),
    }
}
