package install

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/forcefence/forcefence/test/cluster"
	"github.com/forcefence/forcefence/test/kit"
)

var versionTexts = []struct {
	text string
	want string // "": an error
}{
	{"containerd github.com/containerd/containerd/v2 v2.4.2 0123456789abcdef", "2.4.2"},
	{"containerd github.com/containerd/containerd/v2 2.4.2 \n", "2.4.2"},
	{"containerd github.com/containerd/containerd 1.7.27-0ubuntu1~22.04.1 ", "1.7.27"},
	{"containerd github.com/k3s-io/containerd v2.1.5-k3s1 abc", "2.1.5"},
	{"containerd containerd.io 2.2.0-rc.1 x", "2.2.0"},
	{"containerd github.com/containerd/containerd/v2 2.0.0+unknown ", "2.0.0"},
	{"crio version 1.34.1\nVersion:        1.34.1\nGitCommit: 12.0.0x\nGoVersion: go1.24.3", "1.34.1"},
	{"Version:  1.33.0\n", "1.33.0"},
	{"containerd github.com/containerd/containerd/v2 unknown", ""},
	{"containerd 2.4", ""},
	{"", ""},
	{"1234567.0.0", ""},
}

func TestParseVersion(t *testing.T) {
	for _, tc := range versionTexts {
		got, err := parseVersion(tc.text)
		if (err != nil) != (tc.want == "") || err == nil && got.String() != tc.want {
			t.Errorf("%q: got %v, %v; want %v", tc.text, got, err, tc.want)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, tc := range versionTexts {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := parseVersion(text)
		if err != nil {
			if v != nil {
				t.Errorf("got %v with an error", v)
			}
			return
		}
		if again, err := parseVersion(v.String()); err != nil || !again.EqualTo(v) {
			t.Errorf("%v is read back as %v, %v", v, again, err)
		}
	})
}

// NRI's own folders.
const defaultPluginDir, defaultConfigDir = "/opt/nri/plugins", "/etc/nri/conf.d"

var containerdDumps = []struct {
	name, text string
	want       NRI
	bad        bool
}{
	{"2.4", "version = 4\ndisabled_plugins = []\n[plugins.'io.containerd.nri.v1.nri']\ndisable = false\nsocket_path " +
		"= '/s'\nplugin_path = '/p'\n" +
		"plugin_config_path = '/c'\ndisable_connections = " +
		"true\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n" +
		"reject_oci_hook_adjustment = false\nrequired_plugins = ['a', " +
		"'forcefence']\ntolerate_missing_plugins_annotation = 'k'\n",
		NRI{Enabled: true, PluginDir: "/p", ConfigDir: "/c", Validator: true,
			Required: []string{"a", "forcefence"}, Annotation: "k"}, false},
	{"1.7", "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true\nplugin_path = \"/opt/nri/plugins\"\n",
		NRI{PluginDir: "/opt/nri/plugins", ConfigDir: defaultConfigDir}, false},
	{"disabled by name", "disabled_plugins = " +
		"['io.containerd.nri.v1.nri']\n[plugins.'io.containerd.nri.v1.nri']\ndisable = false\n",
		NRI{PluginDir: defaultPluginDir, ConfigDir: defaultConfigDir}, false},
	{"none", "version = 2\n", NRI{PluginDir: defaultPluginDir, ConfigDir: defaultConfigDir},
		false},
	{"no TOML", "x", NRI{}, true},
	{"another type", "[plugins.'io.containerd.nri.v1.nri']\ndisable = 'no'\n", NRI{}, true},
}

func TestParseContainerd(t *testing.T) {
	for _, tc := range containerdDumps {
		got, err := parseContainerd([]byte(tc.text))
		if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.bad {
			t.Errorf("%s: %v; -want +got:\n%s", tc.name, err, diff)
		}
	}
}

func FuzzParseContainerd(f *testing.F) {
	for _, tc := range containerdDumps {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseContainerd([]byte(text))
		checkParsed(t, n, err)
	})
}

func checkParsed(t *testing.T, n NRI, err error) {
	if err != nil && (n.Enabled || n.Validator) {
		t.Errorf("got %+v with an error: a caller could mistake it for a protection", n)
	}
	if err == nil && (n.PluginDir == "" || n.ConfigDir == "") {
		t.Errorf("got %+v: without a folder", n)
	}
}

// TestRealContainerd: a real one's own defaults.
func TestRealContainerd(t *testing.T) {
	program := cluster.Containerd(t)
	out, err := exec.Command(program, "--version").Output()
	kit.Must(t, err)
	if v, err := parseVersion(string(out)); err != nil || !v.AtLeast(kinds[containerd].validator) {
		t.Errorf("%q: got %v, %v", out, v, err)
	}
	out, err = exec.Command(program, "--config", filepath.Join(t.TempDir(), "none.toml"), "config", "dump").Output()
	kit.Must(t, err)
	got, err := parseContainerd(out)
	want := NRI{Enabled: true, PluginDir: defaultPluginDir,
		ConfigDir: defaultConfigDir, Required: []string{}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, diff)
	}
}

// These are in CRI-O's form, in our words: it cannot run where these tests do.
var crioConfigs = []struct {
	name, text string
	want       NRI
	bad        bool
}{
	{"as it comes: every setting is a comment", `
# The runtime's tables.
[crio]
# root = "/var/lib/containers/storage"
[crio.runtime]
# enable_nri = false
# Where NRI is set up.
#
[crio.nri]

# Turns NRI on or off.
# enable_nri = true

# The socket.
# nri_listen = "/var/run/nri/nri.sock"

# nri_plugin_dir = "/opt/nri/plugins"
# nri_plugin_config_dir = "/etc/nri/conf.d"
# nri_disable_connections = false
# nri_plugin_registration_timeout = "5s"

# A validator that is built in.
#
# [crio.nri.default_validator]
# nri_enable_default_validator = false
# nri_validator_reject_oci_hook_adjustment = false
# nri_validator_required_plugins = [
# ]
# nri_validator_tolerate_missing_plugins_annotation = ""
[crio.stats]
# enable_nri = false
`, NRI{Enabled: true, PluginDir: "/opt/nri/plugins", ConfigDir: "/etc/nri/conf.d",
		Required: []string{}}, false},
	{"configured", `
[crio.nri]
# enable_nri = true
nri_plugin_dir = "/usr/local/nri"
nri_disable_connections = true
[crio.nri.default_validator]
nri_enable_default_validator = true
nri_validator_required_plugins = [
	"other",
	"forcefence",
]
nri_validator_tolerate_missing_plugins_annotation = "forcefence.io/tolerate-missing"
`, NRI{Enabled: true, PluginDir: "/usr/local/nri", ConfigDir: defaultConfigDir, Validator: true,
		Required: []string{"other", "forcefence"}, Annotation: "forcefence.io/tolerate-missing"}, false},
	{"what is no comment wins, before and after", `
[crio.nri]
enable_nri = false
# enable_nri = true
# nri_plugin_dir = "/a"
nri_plugin_dir = "/b"
`, NRI{PluginDir: "/b", ConfigDir: defaultConfigDir}, false},
	{"a list in one line", "[crio.nri.default_validator]\nnri_validator_required_plugins = [\"a\"]\n",
		NRI{PluginDir: defaultPluginDir, ConfigDir: defaultConfigDir,
			Required: []string{"a"}}, false},
	{"too old for NRI", "[crio.runtime]\n",
		NRI{PluginDir: defaultPluginDir, ConfigDir: defaultConfigDir}, false},
	{"a list without an end", "[crio.nri.default_validator]\nnri_validator_required_plugins = [\n\"a\",\n", NRI{},
		true},
	{"another type", "[crio.nri]\nenable_nri = \"yes\"\n", NRI{}, true},
}

func TestParseCRIO(t *testing.T) {
	for _, tc := range crioConfigs {
		got, err := parseCRIO([]byte(tc.text))
		if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != tc.bad {
			t.Errorf("%s: %v; -want +got:\n%s", tc.name, err, diff)
		}
	}
}

func FuzzParseCRIO(f *testing.F) {
	for _, tc := range crioConfigs {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseCRIO([]byte(text))
		checkParsed(t, n, err)
	})
}
