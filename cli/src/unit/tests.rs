//! Tests of units, with the files of a scratch directory.

use super::*;

#[test]
fn drop_ins_add_to_the_unit_and_replace_what_it_says() {
    let place = lockstep_testkit::TempDir::new("unit");
    let write = |path: &str, text: &str| {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let unit = |name| Unit::read(&place, name);
    assert!(unit("haproxy.service").is_none());
    write(
        "lib/systemd/system/haproxy.service",
        "[Unit]\nPrivateTmp=yes\n[Service]\nEnvironment=\"CONFIG=/etc/a b\" X=1\nProtectHome=true\n",
    );
    let plain = unit("haproxy.service").unwrap();
    assert_eq!(plain.variable("CONFIG").as_deref(), Some("/etc/a b"));
    assert_eq!(
        (plain.get("PrivateTmp"), plain.variable("OPENSSL_CONF")),
        (None, None)
    );
    assert_eq!(plain.hiding(), ["ProtectHome=true"]);

    let drop_in = "etc/systemd/system/haproxy.service.d/lockstep.conf";
    write(
        drop_in,
        "# ours\n[Service]\nEnvironment=OPENSSL_CONF=/x/openssl.cnf\n",
    );
    write(
        "run/systemd/system/haproxy.service.d/lockstep.conf",
        "[Service]\nEnvironment=\n",
    );
    write(
        "run/systemd/system/haproxy.service.d/zz.conf",
        "[Service]\nProtectHome=no\nPrivateTmp=yes\nSystemCallFilter=@system-service \\\n ~@mount\n",
    );
    let changed = unit("haproxy.service").unwrap();
    assert_eq!(
        changed.variable("OPENSSL_CONF").as_deref(),
        Some("/x/openssl.cnf")
    );
    assert_eq!(changed.variable("X").as_deref(), Some("1"));
    assert_eq!(
        changed.get("SystemCallFilter"),
        Some("@system-service   ~@mount")
    );
    assert_eq!(changed.hiding(), ["PrivateTmp=yes"]);
    assert_eq!(changed.files.len(), 3);
    let drop_in = place.join(drop_in);
    let read = |planned: Planned| Unit::read_with(&place, "haproxy.service", &[planned]);
    let without = read((drop_in.clone(), None)).unwrap();
    assert_eq!(without.variable("OPENSSL_CONF"), None);
    let text = "[Service]\nEnvironment=OPENSSL_CONF=/y\n".to_owned();
    let with = |name: &str| read((drop_in.with_file_name(name), Some(text.clone())));
    let variable = |unit: Option<Unit>| unit.unwrap().variable_and_file("OPENSSL_CONF");
    let later = drop_in.with_file_name("zz-lockstep.conf");
    let (value, file) = variable(with("zz-lockstep.conf")).unwrap();
    assert_eq!((value.as_str(), file), ("/y", later));
    let (value, file) = variable(with("a.conf")).unwrap();
    assert_eq!((value.as_str(), file), ("/x/openssl.cnf", drop_in));
}

/// systemd 252 took these drop-ins, by `systemd-analyze verify`.
#[test]
fn drop_ins_of_many_services_count() {
    let place = lockstep_testkit::TempDir::new("many");
    let write = |path: &str, text: &str| {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("[Service]\n{text}\n")).unwrap();
    };
    for level in [
        "service",
        "foo-.service",
        "foo-@.service",
        "foo-@x.service",
        "foo-bar-.service",
        "foo-bar.service",
        "foo-bar@.service",
    ] {
        let file = format!("etc/systemd/system/{level}.d/{level}.conf");
        write(&file, &format!("Environment=A={level}"));
    }
    let names = |name: &str| -> Vec<String> {
        let files = Unit::read(&place, name).map_or(Vec::new(), |unit| unit.files);
        let stems = files.iter().filter_map(|file| file.file_stem()?.to_str());
        stems.map(str::to_owned).collect()
    };
    assert!(names("foo-baz.service").is_empty());
    write("lib/systemd/system/foo-bar-baz.service", "");
    let found = ["foo-bar-baz", "foo-.service", "foo-bar-.service", "service"];
    assert_eq!(names("foo-bar-baz.service"), found);
    let found = [
        "foo-.service",
        "foo-@.service",
        "foo-@x.service",
        "foo-bar@.service",
        "service",
    ];
    assert_eq!(names("foo-bar@x.service"), found);
    let last = || {
        let unit = Unit::read(&place, "foo-bar-baz.service").unwrap();
        unit.variable("A")
    };
    assert_eq!(last().as_deref(), Some("service"));
    // A drop-in of the unit's own replaces one of the same name.
    write("run/systemd/system/foo-bar-baz.service.d/service.conf", "");
    assert_eq!(last().as_deref(), Some("foo-bar-.service"));
}

#[test]
fn files_of_the_environment_go_before_the_unit() {
    let place = lockstep_testkit::TempDir::new("environment");
    let write = |path: &str, text: &str| {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let variable = || {
        let unit = Unit::read(&place, "a.service").unwrap();
        let (value, file) = unit.variable_and_file("A")?;
        Some((value, file.strip_prefix(&place).unwrap().to_owned()))
    };
    let found = |value: &str, file: &str| Some((value.to_owned(), PathBuf::from(file)));
    let files = "EnvironmentFile=-/etc/default/a\nEnvironmentFile=/etc/default/b\n";
    let unit = "lib/systemd/system/a.service";
    write(unit, &format!("[Service]\nEnvironment=A=1\n{files}"));
    assert_eq!(variable(), found("1", unit));
    write("etc/default/a", "# A=no\nA = '2 3'\nB=4\n");
    assert_eq!(variable(), found("2 3", "etc/default/a"));
    write("etc/default/b", "A=4\nA=\"5\"\n");
    assert_eq!(variable(), found("5", "etc/default/b"));
    let drop_in = "etc/systemd/system/a.service.d/b.conf";
    write(drop_in, "[Service]\nEnvironmentFile=\nEnvironment=A=6\n");
    assert_eq!(variable(), found("6", drop_in));
    write(drop_in, "[Service]\nUnsetEnvironment=B A\n");
    assert_eq!(variable(), None);
}

/// A service of systemd 252 had these values.
#[test]
fn files_of_the_environment_are_read_as_systemd_reads_them() {
    let text = "C=x\"y\"z\nD='a b'\nE=\"a\\\"b\\\\c\\d\"\nF=a  b  \nG=\"a\"'b'\nH=a\\ b\n\
                I=a # no\nexport J=1\nK=\"a b\nc\"\n L = 1\nM='a'b\nN=a\\\nb\nO=\"x\" y\nP=%i\n\
                Q=$A\n;R=1\n#R='\nR\nS=\n";
    for (name, expected) in [
        ("C", Some("x\"y\"z")),
        ("D", Some("a b")),
        ("E", Some("a\"b\\c\\d")),
        ("F", Some("a  b")),
        ("G", Some("ab")),
        ("H", Some("a b")),
        ("I", Some("a # no")),
        ("J", None),
        ("K", Some("a b\nc")),
        ("L", Some("1")),
        ("M", Some("ab")),
        ("N", Some("ab")),
        ("O", Some("xy")),
        ("P", Some("%i")),
        ("Q", Some("$A")),
        ("R", None),
        ("S", Some("")),
    ] {
        assert_eq!(environment_value(text, name).as_deref(), expected, "{name}");
    }
}

#[test]
fn files_of_the_environment_may_be_named_by_patterns_and_by_the_unit() {
    let place = lockstep_testkit::TempDir::new("patterns");
    let write = |path: &str, text: &str| {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let unit = "[Service]\nEnvironmentFile=-/etc/%p-%i\nEnvironmentFile=-/etc/d/*.env\n";
    write("lib/systemd/system/t@.service", unit);
    let variable = || Unit::read(&place, "t@i.service").unwrap().variable("A");
    write("etc/t-i", "A=1\n");
    assert_eq!(variable().as_deref(), Some("1"));
    write("etc/d/1.env", "A=2\n");
    write("etc/d/2.env", "A=3\n");
    write("etc/d/.3.env", "A=4\n");
    write("etc/d/3.environment", "A=5\n");
    assert_eq!(variable().as_deref(), Some("3"));
}

#[test]
fn values_add_up_until_an_empty_one() {
    let place = lockstep_testkit::TempDir::new("values");
    let path = place.join("lib/systemd/system/a.service");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text = "[Service]\nB=1\nB=2\nC=\nB=\nB=3\nB=4 5\n";
    fs::write(path, text).unwrap();
    let unit = Unit::read(&place, "a.service").unwrap();
    assert_eq!(unit.all("B"), ["3", "4 5"]);
    assert!(unit.all("C").is_empty() && unit.all("D").is_empty());
}

#[test]
fn instances_belong_to_their_template() {
    for (service, unit, name) in [
        ("haproxy.service", "haproxy.service", "haproxy"),
        ("stunnel@web.service", "stunnel@.service", "stunnel"),
        ("stunnel@.service", "stunnel@.service", "stunnel"),
    ] {
        assert_eq!((&*template(service), stem(service)), (unit, name));
    }
}

#[test]
fn an_instance_has_the_files_of_its_template() {
    let place = lockstep_testkit::TempDir::new("template");
    let directory = place.join("etc/systemd/system/stunnel@.service.d");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join("lockstep.conf"),
        "[Service]\nEnvironment=A=b\n",
    )
    .unwrap();
    let unit = Unit::read(&place, "stunnel@web.service").unwrap();
    assert_eq!(unit.variable("A").as_deref(), Some("b"));
}
