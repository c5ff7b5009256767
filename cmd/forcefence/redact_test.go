package main

import (
	"reflect"
	"strings"
	"testing"
)

// TestScrubs: each way to write a secret, with § in its place.
func TestScrubs(t *testing.T) {
	const secret = "S3CR3TS3CR3TS3CR3TS3CR3TS3CR3TS3CR3T"
	for _, text := range []string{
		// Settings and variables.
		"pwd=§", "PWD=§", "bmcPwd: §", "PASS=§", "pass: §", "DB_PASS=§", "bmcPass=§", "pw=§", "passphrase=§",
		"passcode: §", "admin_pass='§'",
		"AccountKey=§;EndpointSuffix=x", "SharedAccessKey=§", "client_key: §", "authKey=§", "jwt=§",
		"snmp-community = §", "?access_token=§&a=b",
		// Arguments of programs.
		"fence_ipmilan -P § -o status", "ipmitool -H bmc -p § power status",
		`args: ["-P","§"]`, `args: ["-P", "§"]`, "[fence_x -P § -o status]",
		"-P '§'", `-P "a §"`, "-P=§", "-p -P §", "--passwd §", "--password=§", `"--snmp-priv-passwd","§"`,
		`{\"args\":[\"--password\",\"§\"]}`,
		"ipmitool -k § power status", "kg=§", "kg: §", `args: ["--kg","§"]`, "psk=§", "wifi_psk: §", `"psk":"§"`,
		"snmpget -v3 -u me -a SHA -A § -x AES -X § bmc", "snmpget -v2c -c § bmc", `["snmpset","-c","§"]`,
		"snmpget -v 3 -A '§ §' bmc", "/usr/bin/snmpwalk -A § bmc", "snmpget -A§ bmc",
		"snmpget -v3 -u me -l authPriv -X § bmc",
		"curl -u me:§ https://bmc", "curl -sk -u me:§ https://bmc", "curl --user me:§ https://bmc",
		"curl -ume:§ https://bmc",
		"curl -U me:§ https://bmc", "curl --proxy-user me:§ https://bmc", `["curl","-u","me:§"]`,
		// Signed addresses.
		"https://a/b?X-Amz-Signature=§", "https://a/b?X-Amz-Credential=§&X-Amz-Date=1", "https://a/b?sv=1&sig=§",
		"https://a/b?Signature=§&Expires=1", "https://a/b?X-Goog-Signature=§", "https://a/b?a=b&signature=§",
		// HTTP.
		"Cookie: a=1\\r\\nSet-Cookie: b=§", "Set-Cookie: a=1, b=§", `Cookie: "a=1"; b=§`, `Cookie: a="1"; b="§"`,
		`Cookie: a='1'; b=§`,
		"Negotiate §", "Authorization: Negotiate §", "WWW-Authenticate: Negotiate §",
		"NTLM §", "Bearer §", "Basic §", "Digest §",
		"Authorization: Custom a §", "Proxy-Authorization: x §", "Cookie: a=1; session=§",
		`{"Authorization":"Custom §"}`,
		`"h":"{\"Cookie\":\"a=1; b=§\"}"`, "map[Authorization:[Custom §] Accept:[x]]", "https://admin:§@bmc",
		"https://§@bmc",
		// Quotation marks and brackets, also those that were cut.
		`{"password":"§"}`, `{\"password\":\"§\"}`, `\\\"password\\\":\\\"§\\\"`, `password="§`, `password="a §`,
		`password='a §`, `"password":"a\"§"`,
		`password: ["a","§"]`, `password: {a: §}`, `password=[§`,
		// What is known by its looks.
		"ghp_§", "gho_§", "ghs_§", "ghu_§", "ghr_§", "github_pat_11AB_§", "glpat-§", "glrt-§", "gldt-§",
		"glcbt-64_§", "xoxb-123-§", "xoxp-§", "xapp-1-§",
		"AKIA§", "ASIA§", "AIza§", "ya29.§", "GOCSPX-§", "npm_§", "pypi-§", "dckr_pat_§", "hvs.§",
		"sk_live_§", "sk-§", "sk-ant-§", "hf_§", "SG.§.§",
		"dop_v1_§", "ATBB§", "ATATT3§", "sha256~§", "AGE-SECRET-KEY-1§", "$6$salt$§", "$2b$12$§",
		"eyJhbGciOiJSUzI1NiJ9.§.§", "eyJhbGciOiJSUzI1NiJ9.§.§.§.§", "-----BEGIN OPENSSH PRIVATE KEY-----\n§",
	} {
		for _, around := range []string{"§", `msg="sent § to n1"`, "(§)", "a §\nkept"} {
			given := strings.ReplaceAll(strings.ReplaceAll(around, "§", text), "§", secret)
			if got := redactText(given); strings.Contains(got, "S3CR3T") || !strings.Contains(got, redacted) {
				t.Errorf("%s\nbecame %s", given, got)
			}
		}
	}
	for _, plain := range []string{
		"status: passed", "bypass: true", "compass=north", "mode: fail-open",
		"node gluster-worker-1.internalcluster1.example.net", "glusterd-heketi-pod",
		"disk-east-worker-pool-0123456789", "-o status", "tokens were refused", "negotiate a version", "digest=",
		"PASSED: 3", "--password-file /etc/p",
		"-u me", "user -u root", "-c 3 -A 4", "ping -c 3 n1", "ssh -A n1", "task-1: sig 9", "signature is wrong",
		"ipmitool -k", "signal=9", "kgs=4", "5kg: ok",
		"--tokenless", "password", "-p", "pwd:", "f-0123456789ab", "n1.f-0123456789ab",
	} {
		if got := redactText(plain); got != plain {
			t.Errorf("%s\nbecame %s", plain, got)
		}
	}
}

// TestScrubHostile: a text of any size is taken in, in time that grows with it: with the race detector these take hours
// if it grows with the square.
func TestScrubHostile(t *testing.T) {
	for _, part := range []string{
		"a=", `"a=`, `a="`, `\"a=`, "token=", `token="`, `token=\"`, "token='", "-p ", "-P -", "://a@", "://", "eyJ",
		"eyJa.", "a ", "a:[", "token:[", "token:{", "-----BEGIN PRIVATE KEY-----", "Basic ", "$6$", "pwd   ", "\\",
		"cookie=", "ghp_", "curl -u", "snmp -A ", "curl -sS", `cookie="a";`, `="a"`, "?sig=", "&sig",
	} {
		text := strings.Repeat(part, (64<<10)/len(part))
		if got := redactText(text); len(got) > len(text)*8 {
			t.Errorf("%q: %d bytes became %d", part, len(text), len(got))
		}
	}
}

// TestScrubLong: a long text of an object is cut first, and half a secret at its end goes as a whole.
func TestScrubLong(t *testing.T) {
	long := strings.Repeat("a ", maxText/2-8)
	for _, tt := range []struct{ given, want string }{
		{strings.Repeat("a", maxText), strings.Repeat("a", maxText)},
		{strings.Repeat("a", maxText+1), "<cut>"},
		{strings.Repeat("a ", maxText), strings.Repeat("a ", maxText/2) + "<cut>"},
		{long + "token ghp_0123456789012345678901234567890", long + "token <cut>"},
		{"a " + strings.Repeat("b=", maxText), "a <cut>"},
	} {
		got, want := redactAll(map[string]any{"message": tt.given}), map[string]any{"message": tt.want}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%.40s... became %.60v, want %.60s", tt.given, got, tt.want)
		}
	}
	if got := redactAll(map[string]any{strings.Repeat("k", maxText+1): "v"}); !reflect.DeepEqual(got,
		map[string]any{"<cut>": "v"}) {
		t.Errorf("a long key: got %.60v", got)
	}
	if got := cutText("one\ntwo\nghp_01234567", 16, "\n"); got != "one\ntwo\n<cut>" {
		t.Errorf("a log: got %q", got)
	}
}

// TestScrubArguments: a secret that follows its option in a list.
func TestScrubArguments(t *testing.T) {
	got := redactAll([]any{
		"fence_x", "-P", "hunter2", "--password", "hunter2", "-p", "-o", "status",
		"--passwd", map[string]any{"a": "hunter2", "file": "/etc/p"},
	})
	if got, want := redactAll([]any{"snmpget", "-v3", "-A", "hunter2", "-X", "hunter2", "-c", "hunter2", "bmc"}),
		[]any{"snmpget", "-v3", "-A", redacted, "-X", redacted, "-c", redacted, "bmc"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := redactAll([]any{"curl", "-s", "-u", "me:hunter2", "https://bmc"}),
		[]any{"curl", "-s", "-u", redacted, "https://bmc"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	want := []any{
		"fence_x", "-P", redacted, "--password", redacted, "-p", "-o", "status",
		"--passwd", map[string]any{"a": redacted, "file": "/etc/p"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
