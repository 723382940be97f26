//! Tests of plans, without a file system.

use super::*;

/// nginx with these texts of its two files.
fn nginx(texts: [Option<&str>; 2]) -> Observed {
    let mut servers = SERVERS.iter();
    let server = servers.find(|server| server.name == "nginx").unwrap();
    let files = server.files().zip(texts);
    let files = files.map(|((path, template), text)| (Found::with(&path, text), template));
    Observed {
        server,
        mark: PathBuf::from("mark"),
        files: files.collect(),
        conf: "/c.cnf".to_owned(),
        own: None,
        lines: Vec::new(),
        keys: None,
        also: Vec::new(),
        notes: vec!["note".to_owned()],
        by_systemd: true,
        lacks: None,
    }
}

#[test]
fn a_plan_is_made_from_texts_alone() {
    let changes = |texts| {
        let (plan, notes) = nginx(texts).plan()?;
        assert_eq!(
            (&plan.marks[..], &notes[..]),
            (&["mark".into()][..], &["note".into()][..])
        );
        Ok::<_, Failure>(plan.changes)
    };
    let fresh = changes([None, None]).unwrap();
    let [
        Change::Write { text: drop_in, .. },
        Change::Write { text: other, .. },
    ] = &fresh[..]
    else {
        panic!("two files to write");
    };
    assert!(drop_in.ends_with("\n[Service]\nEnvironment=OPENSSL_CONF=/c.cnf\n"));
    let again = changes([Some(drop_in), Some(other)]).unwrap();
    assert!(again.iter().all(Change::is_nothing));
    let elsewhere = drop_in.replace("/c.cnf", "/d.cnf");
    let moved = changes([Some(&elsewhere), Some(other)]).unwrap();
    assert_eq!(
        moved.iter().filter(|change| !change.is_nothing()).count(),
        1
    );
    let theirs = format!("{other}env MINE;\n");
    let failure = changes([Some(drop_in), Some(&theirs)]).err().unwrap();
    assert!(
        failure.what.contains("99-lockstep.conf is not as"),
        "{failure:?}"
    );
}
