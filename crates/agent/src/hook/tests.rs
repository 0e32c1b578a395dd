//! Hooks on fake container roots.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::elf::tests::library;
use super::inside::Inside;
use super::profile::{Node, mask, profile};
use super::*;

struct Container {
    dir: tempfile::TempDir,
}

impl Container {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("root")).expect("a root");
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn inside(&self) -> Inside {
        Inside::open(&self.root()).expect("a root")
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.root().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(path, text).expect("a file");
        self
    }

    fn link(&self, target: &str, name: &str) -> &Self {
        let path = self.root().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        symlink(target, path).expect("a link");
        self
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root().join(name)).ok()
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let state = serde_json::json!({"bundle": self.dir.path(), "root": "root"}).to_string();
        run(&words, &mut state.as_bytes())
    }
}

#[test]
fn the_root_is_in_the_state_or_in_the_bundle() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = |text: &str| std::fs::write(dir.path().join("config.json"), text).expect("a file");
    let of = |state: serde_json::Value| state::container_root(None, &mut state.to_string().as_bytes());
    let bundle = dir.path();
    assert_eq!(of(serde_json::json!({"bundle": bundle, "root": "/abs"})).expect("a root"), Path::new("/abs"));
    assert_eq!(of(serde_json::json!({"bundle": bundle, "root": "rel"})).expect("a root"), bundle.join("rel"));
    assert!(of(serde_json::json!({"bundle": bundle})).is_err(), "no config.json");
    config(r#"{"root": {"path": "rootfs"}}"#);
    assert_eq!(of(serde_json::json!({"bundle": bundle})).expect("a root"), bundle.join("rootfs"));
    config(r#"{"root": {"path": "/var/rootfs"}}"#);
    assert_eq!(of(serde_json::json!({"bundle": bundle})).expect("a root"), Path::new("/var/rootfs"));
    config("{}");
    assert_eq!(of(serde_json::json!({"bundle": bundle})).expect("nothing"), PathBuf::new());
}

#[test]
fn an_unknown_hook_keeps_no_container_from_starting() {
    let container = Container::new();
    for words in [&["noop"][..], &["of-the-future", "--x"], &[]] {
        container.run(words).expect("nothing to do");
    }
    let error = container.run(&["create-symlinks", "--what"]).expect_err("no such flag").to_string();
    assert!(error.contains("create-symlinks"), "{error}");
}

#[test]
fn links_are_made_kept_and_replaced() {
    let container = Container::new();
    container.link("libcuda.so.1", "lib/same.so").link("other", "lib/wrong.so").file("lib/file.so", "x");
    let links = [
        "libcuda.so.1::/lib/same.so",
        "libcuda.so.1::/lib/wrong.so",
        "/lib/abs.so.1::/lib/abs.so",
        "x::/new/dir/link",
        "y::/lib/file.so",
    ];
    let words: Vec<&str> = links.iter().flat_map(|link| ["--link", link]).collect();
    container.run(&[&["create-symlinks"], &words[..]].concat()).expect("made");
    let target = |name: &str| std::fs::read_link(container.root().join(name)).expect(name);
    assert_eq!(target("lib/same.so"), Path::new("libcuda.so.1"));
    assert_eq!(target("lib/wrong.so"), Path::new("libcuda.so.1"));
    assert_eq!(target("lib/abs.so"), Path::new("/lib/abs.so.1"));
    assert_eq!(target("new/dir/link"), Path::new("x"));
    assert_eq!(target("lib/file.so"), Path::new("y"));
    let left = std::fs::read_dir(container.root().join("lib")).expect("listed").count();
    assert_eq!(left, 4, "nothing temporary is left");
    for wrong in ["x", "::x", "x::"] {
        assert!(container.run(&["create-symlinks", "--link", wrong]).is_err(), "{wrong}");
    }
}

#[test]
fn no_path_leads_out_of_the_root() {
    let container = Container::new();
    let outside = container.dir.path().join("outside");
    std::fs::create_dir(&outside).expect("a directory");
    container
        .link(outside.to_str().expect("text"), "absolute")
        .link("../../../../../..", "up")
        .link("/", "slash")
        .link("loop", "loop");
    let links = ["x::/absolute/one", "x::/up/two", "x::/slash/three", "x::/../../four"];
    for link in links {
        container.run(&["create-symlinks", "--link", link]).expect(link);
    }
    assert_eq!(std::fs::read_dir(&outside).expect("listed").count(), 0, "nothing is made outside");
    for name in ["two", "three", "four"] {
        assert!(container.root().join(name).is_symlink(), "{name} is at the root");
    }
    let inner = container.root().join(outside.strip_prefix("/").expect("absolute")).join("one");
    assert!(inner.is_symlink(), "an absolute link is taken below the root");
    assert!(container.run(&["create-symlinks", "--link", "x::/loop/y"]).is_err(), "circles are refused");
    assert!(container.inside().read(Path::new("/up/etc/hostname-of-no-one")).is_err());
}

#[test]
fn the_loader_is_told_what_it_does_not_know() {
    let cases: [(&str, &[&str], Option<&str>); 6] = [
        ("/a\n/b\n", &["/a", "/b"], None),
        ("/a\n", &["/a", "/b"], Some("/b\n")),
        ("", &["/a", "/b"], Some("/a\n/b\n")),
        ("# /a\n/b # why\n", &["/a", "/b"], Some("/a\n")),
        ("include ld.so.conf.d/*.conf\n", &["/a", "/from-include"], Some("/a\n")),
        ("/x\n", &["/a", "/a", "/usr/lib64"], Some("/a\n")),
    ];
    for (conf, folders, wanted) in cases {
        let container = Container::new();
        container.file("etc/ld.so.conf", conf).file("etc/ld.so.conf.d/x.conf", "/from-include\n");
        let folders: Vec<String> = folders.iter().map(|folder| (*folder).to_owned()).collect();
        ldcache::configure(&container.inside(), &folders).expect("written");
        assert_eq!(container.text("etc/ld.so.conf.d/00-nvcr-0.conf").as_deref(), wanted, "{conf:?}");
        assert_eq!(container.text("etc/ld.so.conf").as_deref(), Some(conf), "left as it was");
        assert_eq!(
            container.text("etc/ld.so.conf.d/zz-nvcr-0.conf").as_deref(),
            Some("/lib64\n/usr/lib64\n/lib\n/usr/lib\n")
        );
    }
}

#[test]
fn a_loader_without_configuration_gets_one() {
    let container = Container::new();
    container.file("etc/debian_version", "13\n");
    ldcache::configure(&container.inside(), &["/a".into()]).expect("written");
    assert_eq!(container.text("etc/ld.so.conf").as_deref(), Some("include /etc/ld.so.conf.d/*.conf\n"));
    let system = container.text("etc/ld.so.conf.d/zz-nvcr-0.conf").expect("written");
    assert!(system.starts_with(&format!("/lib/{}-linux-gnu\n", std::env::consts::ARCH)), "{system}");
    ldcache::configure(&container.inside(), &["/a".into(), "/b".into()]).expect("written");
    assert_eq!(container.text("etc/ld.so.conf.d/00-nvcr-0.conf").as_deref(), Some("/a\n"), "the first stays");
    assert_eq!(container.text("etc/ld.so.conf.d/00-nvcr-1.conf").as_deref(), Some("/b\n"));
}

#[test]
fn the_loader_of_alpine_keeps_its_usual_path() {
    let container = Container::new();
    container.file("etc/alpine-release", "3.22\n");
    ldcache::configure(&container.inside(), &["/a".into()]).expect("written");
    let file = format!("etc/ld-musl-{}.path", std::env::consts::ARCH);
    assert_eq!(container.text(&file).as_deref(), Some("/lib\n/usr/local/lib\n/usr/lib\n/a\n"));
    ldcache::configure(&container.inside(), &["/a".into(), "/b".into()]).expect("written");
    assert_eq!(container.text(&file).as_deref(), Some("/lib\n/usr/local/lib\n/usr/lib\n/a\n/b\n"));
}

#[test]
fn the_hosts_root_is_refused() {
    let state = serde_json::json!({"bundle": "/", "root": "/"}).to_string();
    let words = ["update-ldcache".to_owned(), "--folder".into(), "/a".into()];
    let error = run(&words, &mut state.as_bytes()).expect_err("the host").to_string();
    assert!(error.contains("the container's root is the host's"), "{error}");
}

/// The following tests need root; without it the kernel refuses.
fn root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn the_hosts_ldconfig_writes_the_containers_cache() {
    if !root() || !Path::new("/sbin/ldconfig").exists() {
        return;
    }
    let container = Container::new();
    let lib = std::fs::read_dir("/lib/x86_64-linux-gnu").or_else(|_| std::fs::read_dir("/lib64")).expect("libraries");
    let name = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libm.so");
    let some = lib.flatten().find(name).expect("a library");
    container.file("driver/libm.so.6", std::fs::read(some.path()).expect("read"));
    // On its own thread: it stays in the container's root.
    let root = container.root();
    let done = std::thread::spawn(move || {
        let inside = Inside::open(&root).expect("a root");
        ldcache::update(&inside, &root, &["/driver".into()], "").map_err(|error| error.to_string())
    });
    match done.join().expect("no panic") {
        Err(error) if error.contains("not permitted") => return,
        done => done.expect("a cache"),
    }
    let cache = std::fs::read(container.root().join("etc/ld.so.cache")).expect("a cache");
    let text = String::from_utf8_lossy(&cache);
    assert!(text.contains("/driver/libm.so.6"), "{text}");
    assert!(!container.root().join("run/nvidia-ctk-hook").exists(), "nothing is left behind");
}

#[test]
fn parameters_are_covered_by_a_copy() {
    if !root() {
        return;
    }
    let container = Container::new();
    container.file("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n");
    let root = container.root();
    let seen = std::thread::spawn(move || {
        // Only this thread sees the mount.
        isolate::tests::unshare_mounts_for_test()?;
        let inside = Inside::open(&root)?;
        params::replace(&inside, Path::new("/proc/driver/nvidia/params"), "ModifyDeviceFiles: 0\n")?;
        let path = root.join("proc/driver/nvidia/params");
        Ok::<_, std::io::Error>((std::fs::read_to_string(&path)?, std::fs::write(&path, "x").is_err()))
    });
    match seen.join().expect("no panic") {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return,
        seen => assert_eq!(seen.expect("mounted"), ("ModifyDeviceFiles: 0\n".to_owned(), true)),
    }
    assert_eq!(container.text("proc/driver/nvidia/params").as_deref(), Some("ModifyDeviceFiles: 1\n"));
}

#[test]
fn only_the_exact_parameter_is_changed() {
    let cases = [
        ("", None),
        ("Other: 1\n", None),
        ("ModifyDeviceFiles: 0\n", None),
        (" ModifyDeviceFiles: 1\n", None),
        ("ModifyDeviceFiles: 1 \n", None),
        ("ModifyDeviceFiles: 11\n", None),
        ("ModifyDeviceFiles: 1", Some("ModifyDeviceFiles: 0\n")),
        ("A: 1\nModifyDeviceFiles: 1\nB: 2\n", Some("A: 1\nModifyDeviceFiles: 0\nB: 2\n")),
    ];
    for (text, wanted) in cases {
        assert_eq!(params::changed(text).as_deref(), wanted, "{text:?}");
    }
}

#[test]
fn the_profile_names_the_gpus_of_the_container() {
    let node = |name: &str, is_char, minor| Node { name: name.into(), is_char, minor };
    let cases = [
        (vec![node("nvidia0", true, 0)], "0x1"),
        (vec![node("nvidia0", true, 8)], "0x100"),
        (vec![node("nvidia0", true, 0), node("nvidia15", true, 15)], "0x8001"),
        (vec![node("nvidiactl", true, 255), node("nvidia-uvm", true, 0), node("nvidia-caps", false, 1)], "0x0"),
        (vec![node("nvidia0", false, 0), node("nvidia", true, 1), node("nvidia64", true, 64)], "0x0"),
    ];
    for (nodes, wanted) in cases {
        let text = profile(mask(&nodes));
        assert!(text.contains(&format!("\"EGLVisibleDGPUDevices\", {wanted}]")), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
    let container = Container::new();
    container.file("dev/nvidia0", "no device");
    container.run(&["update-application-profile"]).expect("written");
    let file = "etc/nvidia/nvidia-application-profiles-rc.d/10-container.conf";
    assert!(container.text(file).expect("a profile").contains("0x0"));
}

#[test]
fn a_mode_is_changed_where_the_path_is() {
    use std::os::unix::fs::PermissionsExt;
    let container = Container::new();
    container.file("dev/dri/card0", "");
    let dir = container.root().join("dev/dri");
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).expect("a mode");
    container.run(&["chmod", "--mode", "755", "--path", "/dev/dri", "--path", "/gone"]).expect("changed");
    assert_eq!(dir.metadata().expect("there").permissions().mode() & 0o777, 0o755);
    assert!(container.run(&["chmod", "--mode", "9x", "--path", "/dev/dri"]).is_err());
}

const COMPAT: &str = "usr/local/cuda/compat";

#[test]
fn a_newer_library_of_the_image_is_taken() {
    let cases: [(&str, &[&str], &str, bool); 8] = [
        ("a newer branch", &["libcuda.so.580.1.2"], "570.1", true),
        ("an older branch", &["libcuda.so.550.1.2"], "570.1", false),
        ("the same branch", &["libcuda.so.570.9.9"], "570.1", false),
        ("numbers, not text", &["libcuda.so.99.1.1"], "100.1", false),
        ("no library", &[], "570.1", false),
        ("several libraries", &["libcuda.so.580.1.2", "libcuda.so.590.1.2"], "570.1", false),
        ("no version of the host", &["libcuda.so.580.1.2"], "", false),
        ("no version that is one", &["libcuda.so.580.1.2"], "x.y", false),
    ];
    for (case, files, host, used) in cases {
        let container = Container::new();
        container.file("etc/hostname", "");
        for file in files {
            container.file(&format!("{COMPAT}/{file}"), "x");
        }
        container.run(&["enable-cuda-compat", "--host-driver-version", host]).expect(case);
        let written = container.text("etc/ld.so.conf.d/00-compat-0.conf");
        assert_eq!(written.as_deref(), used.then_some("/usr/local/cuda/compat\n"), "{case}");
    }
}

#[test]
fn the_way_to_the_library_stays_in_the_root() {
    let container = Container::new();
    container.file("usr/local/cuda-13/compat/libcuda.so.580.1.2", "x").link("/usr/local/cuda-13", "usr/local/cuda");
    container.run(&["enable-cuda-compat", "--host-driver-version=570.1"]).expect("enabled");
    let written = container.text("etc/ld.so.conf.d/00-compat-0.conf");
    assert_eq!(written.as_deref(), Some("/usr/local/cuda-13/compat\n"));
    let container = Container::new();
    container.file("orin/libcuda.so.580.1.2", "x");
    let words = ["enable-cuda-compat", "--host-driver-version=570.1", "--cuda-compat-container-root=/orin"];
    container.run(&words).expect("enabled");
    assert_eq!(container.text("etc/ld.so.conf.d/00-compat-0.conf").as_deref(), Some("/orin\n"));
    let container = Container::new();
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("libcuda.so.580.1.2"), "x").expect("a file");
    container.link(outside.path().to_str().expect("text"), COMPAT);
    container.run(&["enable-cuda-compat", "--host-driver-version=570.1"]).expect("nothing to do");
    assert_eq!(container.text("etc/ld.so.conf.d/00-compat-0.conf"), None);
}

#[test]
fn a_library_says_itself_what_it_works_with() {
    let of = |json: &str| library(".note.cuda.fwd_compatibility", "NVIDIA Corporation", json.as_bytes());
    let orin = of(r#"{"CUDA Version": "12.9", "Driver": [], "Device": ["orin"]}"#);
    let driver = of(r#"{"CUDA Version": "12.9", "Driver": [535, "550"], "Device": []}"#);
    let broken = of("{");
    type Case<'a> = (&'a str, &'a [u8], &'a str, &'a str, &'a str, bool);
    let cases: [Case<'_>; 11] = [
        ("CUDA older on the host", &orin, "", "", "12.8", true),
        ("CUDA the same", &orin, "", "", "12.9", false),
        ("CUDA newer, by numbers", &orin, "", "", "12.10", false),
        ("a branch that it does not name", &driver, "575.1", "570.1", "", false),
        ("a lower branch that it names", &driver, "575.1", "535.1", "", true),
        ("a branch named as text", &driver, "575.1", "550.1", "", true),
        ("the same branch, newer", &driver, "535.9", "535.1", "", true),
        ("the same branch, equal", &driver, "535.1", "535.1", "", false),
        ("the same branch, older", &driver, "535.0", "535.1", "", false),
        ("a note that is none", &broken, "575.1", "570.1", "", true),
        ("no note, but CUDA known", b"x", "575.1", "570.1", "12.8", false),
    ];
    for (case, library, compat, host, cuda, wanted) in cases {
        assert_eq!(compat::usable(library, compat, host, cuda), wanted, "{case}");
    }
}

proptest::proptest! {
    #[test]
    fn any_state_of_a_container_is_answered(text in "[ -~\n]{0,80}") {
        let _ = super::state::container_root(None, &mut text.as_bytes());
    }

    #[test]
    fn parameters_are_changed_once(lines in proptest::collection::vec("ModifyDeviceFiles: [01]|[A-Za-z]{1,8}: [0-9]", 0..6)) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if let Some(changed) = super::params::changed(&text) {
            proptest::prop_assert_eq!(changed.lines().count(), lines.len());
            proptest::prop_assert_eq!(super::params::changed(&changed), None);
        }
    }
}
