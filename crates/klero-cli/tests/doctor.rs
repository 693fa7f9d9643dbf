//! `klero doctor`, with caches and a CUDA driver made for the tests.

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Folder, Ran, command};

/// Runs the command with variables of the environment.
fn doctor(args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut doctor = command(&["doctor"]);
    let output = doctor.args(args).envs(variables.iter().copied()).output().expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("the command writes UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The same as JSON.
fn json(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, Value) {
    let ran = doctor(&[&["--json"], args].concat(), variables);
    (ran.code, serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}")))
}

#[test]
fn a_sound_machine_is_told_in_sections_and_gives_0() {
    let ran = doctor(&[], &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.starts_with(&format!("klero {}, ", env!("CARGO_PKG_VERSION"))), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("\nAll is well.\n"), "{}", ran.stdout);
    let titles: Vec<&str> = ran.stdout.split("\n\n").skip(1).filter_map(|part| part.lines().next()).collect();
    let expected = ["system", "threads", "memory", "CUDA (not used by this build)", "models", "self-test", "speed"];
    assert_eq!(titles, [&expected[..], &["All is well."]].concat());
    let rows = || ran.stdout.lines().filter_map(|line| line.strip_prefix("  "));
    assert!(rows().all(|row| row.get(23..24) == Some(" ") && row.get(24..25) != Some(" ")), "{}", ran.stdout);
    assert_eq!(rows().filter(|row| row.get(24..).is_some_and(|value| value.starts_with("ok "))).count(), 5);
}

#[test]
fn json_says_what_this_machine_is() {
    let (code, told) = json(&["--threads", "3"], &[]);
    assert_eq!((code, &told["ok"]), (Some(0), &json!(true)));
    assert_eq!(told["build"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(told["build"]["target"].as_str().unwrap().starts_with(std::env::consts::ARCH), "{told}");
    assert_eq!(told["system"]["kernels"], json!(klero::instruction_sets()));
    for used in klero::instruction_sets().iter().filter(|set| **set != "sse2") {
        assert!(told["system"]["instruction_sets"].as_array().unwrap().contains(&json!(used)), "{told}");
    }
    let usable = std::thread::available_parallelism().unwrap().get();
    assert_eq!(told["threads"]["usable"], usable);
    assert!(told["threads"]["processors"].as_u64().unwrap() as usize >= usable, "{told}");
    assert_eq!((&told["threads"]["pool"], &told["threads"]["pool_set_by"]), (&json!(3), &json!("--threads")));
    let memory = |name: &str| told["memory"][name].as_u64().unwrap();
    assert!(memory("total") >= memory("available") && memory("available") > 1 << 20, "{told}");
    let checks = told["self_test"].as_array().unwrap();
    assert!(checks.len() == 5 && checks.iter().all(|check| check["ok"] == true && check["error"].is_null()), "{told}");
    let speed = |name: &str| told["speed"][name].as_f64().unwrap();
    assert!(speed("draw_microseconds") > 0.0 && speed("read_gigabytes_per_second") > 0.0, "{told}");
}

#[test]
fn what_sets_the_number_of_threads_is_named() {
    let threads = |variables: &[(&str, &str)]| json(&[], variables).1["threads"].clone();
    let by_variable = threads(&[("RAYON_NUM_THREADS", "2")]);
    assert_eq!((&by_variable["pool"], &by_variable["pool_set_by"]), (&json!(2), &json!("RAYON_NUM_THREADS")));
    let by_nothing = threads(&[("RAYON_NUM_THREADS", "")]);
    assert_eq!((&by_nothing["pool"], &by_nothing["pool_set_by"]), (&by_nothing["usable"], &Value::Null));
}

#[cfg(target_os = "linux")]
#[test]
fn an_affinity_is_seen() {
    let klero = env!("CARGO_BIN_EXE_klero");
    let first = json(&[], &[]).1["threads"]["affinity"].as_u64().unwrap();
    let Ok(output) = Command::new("taskset").args(["-c", "0", klero, "doctor", "--json"]).output() else {
        return println!("skipped: taskset is not installed");
    };
    if !output.status.success() {
        return println!("skipped: processor 0 may not be used: {}", String::from_utf8_lossy(&output.stderr));
    }
    let threads = serde_json::from_slice::<Value>(&output.stdout).unwrap()["threads"].clone();
    assert_eq!((&threads["affinity"], &threads["usable"], &threads["pool"]), (&json!(1), &json!(1), &json!(1)));
    assert!(first >= 1 && threads["processors"].as_u64().unwrap() >= first);
}

#[test]
fn a_default_model_that_is_missing_is_told_and_one_that_is_damaged_is_a_failure() {
    const NAME: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
    let cache = Folder::new("doctor-model");
    let look = || doctor(&[], &[("KLERO_CACHE", &cache.path(""))]);
    let missing = look();
    assert_eq!(missing.code, Some(0), "{missing:?}");
    assert!(missing.stdout.contains("is not there; scripts/fetch-model fetches it\n"), "{missing:?}");
    cache.write(NAME, b"half of it");
    let damaged = look();
    assert_eq!(damaged.code, Some(1), "{damaged:?}");
    assert!(damaged.stdout.contains("damaged: has 10 bytes, must have "), "{damaged:?}");
    assert!(damaged.stdout.contains(NAME) && damaged.stdout.ends_with("Something is wrong: see above.\n"));
    let (code, told) = json(&[], &[("KLERO_CACHE", &cache.path(""))]);
    assert_eq!((code, &told["ok"], &told["models"]["default"]["state"]), (Some(1), &json!(false), &json!("damaged")));
    assert_eq!(told["models"]["default"]["size"], 10);
}

/// A repository as Hugging Face's tools lay it out: files are links to blobs. None is a blob that is not there.
#[cfg(unix)]
fn snapshot(home: &Folder, repository: &str, revision: &str, files: &[(&str, Option<usize>)]) {
    let repository = home.path(&format!("hub/models--{repository}"));
    let (blobs, snapshot) = (format!("{repository}/blobs"), format!("{repository}/snapshots/{revision}"));
    fs::create_dir_all(&blobs).unwrap();
    for (i, (name, size)) in files.iter().enumerate() {
        let (blob, link) = (format!("{blobs}/{i}"), format!("{snapshot}/{name}"));
        fs::create_dir_all(Path::new(&link).parent().unwrap()).unwrap();
        if let Some(size) = size {
            fs::write(&blob, vec![0; *size]).unwrap();
        }
        std::os::unix::fs::symlink(blob, link).unwrap();
    }
}

#[cfg(unix)]
#[test]
fn models_of_hugging_face_are_listed_with_their_sizes() {
    let home = Folder::new("doctor-hub");
    let parts = [("config.json", Some(5)), ("model-1.safetensors", Some(2048)), ("model-2.safetensors", Some(1024))];
    snapshot(&home, "owner--two-parts", "0123456789abcdef", &parts);
    snapshot(&home, "owner--gguf", "fedcba9876543210", &[("Q4/a.gguf", Some(1536)), ("b.gguf", None)]);
    snapshot(&home, "gpt2", "11111111", &[("model.safetensors", None)]);
    snapshot(&home, "owner--only-a-tokenizer", "22222222", &[("tokenizer.json", Some(9))]);
    fs::create_dir_all(home.path("hub/models--owner--nothing-yet/blobs")).unwrap();
    fs::create_dir_all(home.path("hub/datasets--owner--rows/snapshots/3/x.safetensors")).unwrap();
    // A folder that leads back to itself.
    std::os::unix::fs::symlink(home.path("hub"), home.path("hub/models--owner--gguf/snapshots/fedcba9876543210/up"))
        .unwrap();

    let ran = doctor(&[], &[("HF_HOME", &home.path("")), ("HF_HUB_CACHE", "")]);
    let models = ran.stdout.split("\n\nself-test").next().unwrap().split("Hugging Face").nth(1).unwrap();
    let lines: Vec<&str> = models.lines().map(str::trim).collect();
    assert_eq!(
        lines,
        [
            "gpt2 @11111111: 1 safetensors, incomplete",
            "owner/gguf @fedcba98: Q4/a.gguf, 1.5 KiB; b.gguf, incomplete",
            "owner/two-parts @01234567: 2 safetensors, 3.0 KiB",
            home.path("hub").as_str(),
        ]
    );
    let told = json(&[], &[("HF_HUB_CACHE", &home.path("hub"))]).1["models"]["hugging_face"].clone();
    assert_eq!(told["snapshots"].as_array().unwrap().len(), 3);
    assert_eq!(told["snapshots"][1]["repository"], "owner/gguf");
    assert_eq!(
        told["snapshots"][1]["files"],
        json!([{"name": "Q4/a.gguf", "size": 1536}, {"name": "b.gguf", "size": null}])
    );

    let none = json(&[], &[("HF_HUB_CACHE", &home.path("nowhere"))]).1["models"]["hugging_face"].clone();
    assert_eq!(none, json!({"folder": home.path("nowhere"), "snapshots": [], "error": null}));
    let file = home.write("file", b"");
    let unreadable = doctor(&[], &[("HF_HUB_CACHE", &file)]).stdout;
    assert!(unreadable.contains("Hugging Face            cannot be read: "), "{unreadable}");
}

/// A driver with two devices, or one that fails as FAKE_CUDA says; and a compiler.
#[cfg(target_os = "linux")]
const DRIVER: &str = r#"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
static int started;
static int fails(const char *name) { const char *f = getenv("FAKE_CUDA"); return f && !strcmp(f, name); }
int cuGetErrorName(int code, const char **out) {
    if (code != 100) { *out = NULL; return 1; }
    *out = "CUDA_ERROR_NO_DEVICE";
    return 0;
}
int cuGetErrorString(int code, const char **out) {
    if (code != 100) { *out = NULL; return 1; }
    *out = "no CUDA-capable device is detected";
    return 0;
}
int cuDriverGetVersion(int *out) { *out = 12080; return fails("version") ? 7 : 0; }
int cuInit(unsigned flags) { if (fails("init")) return 100; started = flags == 0; return flags; }
int cuDeviceGetCount(int *out) { if (!started) return 3; *out = fails("empty") ? 0 : 2; return 0; }
int cuDeviceGet(int *out, int ordinal) { *out = ordinal + 40; return ordinal < 2 ? 0 : 101; }
int cuDeviceGetName(char *out, int length, int device) {
    const char *name = device == 40 ? "Fake H200" : "Fake A100";
    if ((size_t)length <= strlen(name)) return 1;
    strcpy(out, name);
    return fails("name") ? 999 : 0;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    if (attribute == 75) *out = device == 40 ? 9 : 8;
    else if (attribute == 76) *out = 0;
    else return 1;
    return 0;
}
#ifndef OLD
int cuDeviceTotalMem_v2(size_t *out, int device) { *out = (size_t)(device == 40 ? 141 : 40) << 30; return 0; }
#endif
"#;

#[cfg(target_os = "linux")]
const COMPILER: &str = "int nvrtcVersion(int *major, int *minor) { *major = 12; *minor = 8; return 0; }";

/// Compiles a library for the tests.
#[cfg(target_os = "linux")]
fn library(folder: &Folder, name: &str, source: &str, flags: &[&str]) {
    let source = folder.write(&format!("{name}.c"), source.as_bytes());
    let output = Command::new("cc").args(["-shared", "-fPIC", "-o", &folder.path(name), &source]).args(flags).output();
    let output = output.expect("a C compiler, which Rust needs to link");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(target_os = "linux")]
#[test]
fn a_cuda_driver_is_asked_for_its_devices() {
    let folder = Folder::new("doctor-cuda");
    library(&folder, "libcuda.so.1", DRIVER, &[]);
    library(&folder, "libnvrtc.so.12", COMPILER, &[]);
    let cuda =
        |fails: &str| json(&[], &[("LD_LIBRARY_PATH", &folder.path("")), ("FAKE_CUDA", fails)]).1["cuda"].clone();
    let device = |name: &str, capability: &str, gib: u64| json!({"name": name, "compute_capability": capability, "memory": gib << 30});
    let sound = cuda("");
    assert_eq!(sound["used"], false);
    assert_eq!(
        sound["driver"],
        json!({
            "library": "libcuda.so.1",
            "version": "12.8",
            "devices": [device("Fake H200", "9.0", 141), device("Fake A100", "8.0", 40)],
        })
    );
    assert!(sound["nvrtc"]["version"].is_string() && sound["nvrtc"]["library"].is_string(), "{sound}");
    assert_eq!(cuda("empty")["driver"]["devices"], json!([]));
    let reason = "cuInit fails with CUDA_ERROR_NO_DEVICE, code 100: no CUDA-capable device is detected";
    assert_eq!(cuda("init")["driver"]["devices"], json!({ "reason": reason }));
    let reason = "cuDeviceGetName fails with an error, code 999: no further reason";
    assert_eq!(cuda("name")["driver"]["devices"], json!({ "reason": reason }));
    let reason = "cuDriverGetVersion fails with an error, code 7: no further reason";
    assert_eq!(cuda("version")["driver"], json!({ "reason": reason }));

    let variables = [("LD_LIBRARY_PATH", folder.path(""))];
    let page = doctor(&[], &variables.each_ref().map(|(name, value)| (*name, value.as_str())));
    assert_eq!(page.code, Some(0));
    for line in [
        "  driver                  libcuda.so.1, for CUDA up to 12.8\n",
        "  devices                 Fake H200, compute capability 9.0, 141.0 GiB\n",
        "                          Fake A100, compute capability 8.0, 40.0 GiB\n",
    ] {
        assert!(page.stdout.contains(line), "{}", page.stdout);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn libraries_that_are_no_cuda_are_told_with_the_reason() {
    let folder = Folder::new("doctor-no-cuda");
    let reason = || {
        let (code, told) = json(&[], &[("LD_LIBRARY_PATH", &folder.path(""))]);
        assert_eq!(code, Some(0), "{told}");
        told["cuda"]["driver"]["reason"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    library(&folder, "libcuda.so.1", DRIVER, &["-DOLD"]);
    let old = reason();
    assert!(old.starts_with("it has no function cuDeviceTotalMem_v2: ") && old.contains("undefined symbol"), "{old}");
    folder.write("libcuda.so.1", b"text");
    folder.write("libcuda.so", b"text");
    let text = reason();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        matches!(lines[..], ["not found", first, second]
        if first.starts_with("libcuda.so.1: ") && second.starts_with("libcuda.so: ") && text.contains("file too short")),
        "{text}"
    );
}
