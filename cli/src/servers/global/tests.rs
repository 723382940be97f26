//! Tests of HAProxy's lines, with an HAProxy that computes as the real one does.

use super::*;

const NUMBERS: Numbers = Numbers {
    maxconn: 2000,
    maxpipes: 1000,
};

fn read(text: &str) -> Global {
    let mut global = Global::default();
    global.read(text);
    global
}

#[test]
fn only_lines_that_are_missing_are_added_and_they_are_known_again() {
    let lines = |text: &str| {
        let text = read(text).text(NUMBERS, NUMBERS.maxconn)?;
        assert!(is_own(&text), "{text}");
        assert!(!is_own(&(text.clone() + "    user root\n")), "{text}");
        let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
        Some(lines.collect::<Vec<_>>().join(", "))
    };
    let all = "ssl-mode-async, maxconn 2000, maxpipes 1000, no strict-limits";
    assert_eq!(
        lines("global\nfrontend a\n maxconn 9\n").as_deref(),
        Some(all)
    );
    let own = "global\n maxconn 2000\n strict-limits\n";
    assert_eq!(lines(own).as_deref(), Some("ssl-mode-async, maxpipes 1000"));
    let own = "global\n maxconn 2000\n maxpipes 9\n";
    assert_eq!(lines(own).as_deref(), Some("ssl-mode-async"));
    assert_eq!(lines(&format!("{own} ssl-mode-async\n")), None);
    // The first of several holds, and a variable is not known.
    assert_eq!(read("global\n maxconn 5\n maxconn 7\n").maxconn, Some(5));
    assert!(read("global\n maxpipes ${PIPES}\n").is_unclear);
    let under = |line: &str| {
        let text = format!("global\n.if defined(A)\n{line}\n.endif\n maxconn 5\n");
        let global = read(&text);
        assert_eq!(global.maxconn, Some(5), "{line}");
        (global.is_unclear, global.has_tables)
    };
    for line in ["maxconn 7", "maxpipes 7", "ulimit-n 7", "ssl-mode-async"] {
        assert_eq!(under(line), (true, false), "{line}");
    }
    assert_eq!(under("nbthread 2"), (false, false));
    assert_eq!(under("tune.fd.tables per-thread-group"), (false, true));
    assert!(is_own(EMPTIED));
    assert!(!is_own("") && !is_own(HEADER) && !is_own(&format!("{HEADER}global\n")));
    assert!(is_own_drop_in(&drop_in(&format!("-S /a {}", passed()))));
    assert!(!is_own_drop_in(&drop_in("-S /a")));
    assert!(!is_own_drop_in(&drop_in(&format!(
        "\"\nUser=root\n {}",
        passed()
    ))));
}

/// Finds numbers with an HAProxy that has this limit, can raise it or not, and computes as the real
/// one does.
fn found(text: &str, limit: u64, can_raise: bool) -> Result<(Numbers, u64), String> {
    let global = read(text);
    let start = |numbers: Option<Numbers>| {
        let maxconn = numbers.map(|numbers| numbers.maxconn).or(global.maxconn);
        let maxconn = maxconn.unwrap_or(((limit - 52) / 2).max(100));
        let maxpipes = numbers.map_or(0, |numbers| numbers.maxpipes);
        let maxsock = 2 * (maxconn + maxpipes) + 52;
        let most = global.ulimit.unwrap_or(limit);
        let ulimit = match can_raise && global.ulimit.is_none() {
            true => maxsock,
            false => maxsock.min(most),
        };
        #[rustfmt::skip]
        return Ok(Reported { maxconn, maxsock, ulimit });
    };
    global.numbers(start)
}

#[test]
fn no_connection_is_lost_where_haproxy_can_raise_its_limit() {
    let (numbers, alone) = found("global\n", 20_000, true).unwrap();
    assert_eq!(
        (numbers.maxconn, numbers.maxpipes, alone),
        (9974, 4987, 9974)
    );
    let text = read("global\n").text(numbers, alone).unwrap();
    assert_eq!(fewer(&text), None, "{text}");
    let tls = "global\n maxconn 2000\nbackend b\n server s 1.2.3.4:443 ssl\n";
    let (numbers, _) = found(tls, 3000, true).unwrap();
    assert_eq!((numbers.maxconn, numbers.maxpipes), (2000, 2000));
}

#[test]
fn fewer_connections_are_as_many_as_the_limit_allows_and_are_told() {
    let (numbers, alone) = found("global\n", 20_000, false).unwrap();
    assert!((6600..6650).contains(&numbers.maxconn), "{numbers:?}");
    assert_eq!(
        (numbers.maxpipes, alone),
        (numbers.maxconn.div_ceil(2), 9974)
    );
    let text = read("global\n").text(numbers, alone).unwrap();
    assert!(is_own(&text), "{text}");
    let (what, remedy) = fewer(&text).unwrap();
    let both = format!("at most {} connections", numbers.maxconn);
    assert!(
        what.contains(&both) && what.contains("9974 without"),
        "{what}"
    );
    let both = "`ulimit-n` in haproxy.cfg if that is set, else LimitNOFILE=30000 in its unit";
    assert!(remedy.contains(both), "{remedy}");
    // The remedy leads to this.
    let own = format!("global\n maxconn {}\n", numbers.maxconn);
    let (numbers, alone) = found(&own, 20_000, false).unwrap();
    assert_eq!(fewer(&read(&own).text(numbers, alone).unwrap()), None);
    // Numbers of the administrator that fit, and that do not.
    let plain = "global\n maxconn 2000\nfrontend a\n maxconn 9\n";
    assert_eq!(found(plain, 20_000, false), Ok((NUMBERS, 2000)));
    let (numbers, own) = found("global\n maxconn 7000\n", 20_000, false).unwrap();
    assert!(numbers.maxconn < 6650 && own == 7000, "{numbers:?}");
    let own = "global\n ulimit-n 3000\n";
    assert!(found(own, 20_000, true).unwrap().0.maxconn < 1000);
    assert!(
        found("global\n", 200, false)
            .unwrap_err()
            .contains("too low")
    );
}

#[test]
fn numbers_that_haproxy_reports_are_read() {
    let text = "Name: HAProxy\nUlimit-n: 20000\nMaxsock: 20000\nMaxconn: 9974\n\
                Hard_maxconn: 9974\nMaxpipes: 0\n";
    let reported = Reported::parse(text).unwrap();
    assert_eq!(
        (reported.maxconn, reported.maxsock, reported.ulimit),
        (9974, 20_000, 20_000)
    );
    assert_eq!(Reported::parse("Maxconn: 1\n"), None);
}

#[test]
fn lines_elsewhere_are_none_of_the_section() {
    let all = read("global\n ssl-mode-async\n maxpipes 5\n tune.fd.tables per-thread-group\n");
    assert!(all.is_async && all.has_tables && all.maxpipes == Some(5));
    assert!(!read("global\ndefaults\n ssl-mode-async\n").is_async);
}
