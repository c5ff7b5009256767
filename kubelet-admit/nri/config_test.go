package nri

import (
	"slices"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/taint"
)

func TestParseConfig(t *testing.T) {
	c, err := ParseConfig("nodeName: n3\nkubeconfig: /etc/kubernetes/kubelet.conf\n")
	want := Config{
		NodeName: "n3", Kubeconfig: "/etc/kubernetes/kubelet.conf", TaintKey: taint.DefaultKey,
		StateDir: DefaultStateDir, DataDir: DefaultDataDir, LogFile: DefaultLogFile, Path: DefaultPath,
	}
	if err != nil || c != want {
		t.Errorf("got %+v, %v, want %+v", c, err, want)
	}
}

func TestParseConfigFaults(t *testing.T) {
	const good = "nodeName: n3\nkubeconfig: /k\n"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":           {"", "nodeName: missing"},
		"both missing":    {"taintKey: a/b", "kubeconfig: missing"},
		"unknown field":   {good + "colour: red\n", "colour not found"},
		"not YAML":        {"nodeName: [", "reading the hook's configuration"},
		"node name":       {"nodeName: N_3\nkubeconfig: /k\n", `nodeName: "N_3"`},
		"relative path":   {"nodeName: n3\nkubeconfig: kubelet.conf\n", "not an absolute path"},
		"relative log":    {good + "logFile: x.log\n", "logFile"},
		"relative state":  {good + "stateDir: run\n", "stateDir"},
		"relative data":   {good + "dataDir: lib\n", "dataDir"},
		"taint key":       {good + "taintKey: 'a b'\n", "taintKey"},
		"a list":          {"- nodeName: n3\n", "reading the hook's configuration"},
		"no log is valid": {good + "logFile: none\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig(tt.text)
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want it to name %q", err, tt.want)
			}
		})
	}
}

// TestMarshalForAnOlderPlugin: the plugin of before an upgrade may be started with the configuration of after it, and
// refuses a key that it does not know: then it would hold nothing. These are the keys that the first version knew.
func TestMarshalForAnOlderPlugin(t *testing.T) {
	text, err := Config{NodeName: "n3", Kubeconfig: "/k"}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		key, _, _ := strings.Cut(line, ":")
		if !slices.Contains([]string{"nodeName", "kubeconfig", "taintKey", "stateDir", "logFile", "path"}, key) {
			t.Errorf("an older plugin does not know %q", line)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add("nodeName: n3\nkubeconfig: /etc/kubernetes/kubelet.conf\n")
	f.Add("nodeName: n3\nkubeconfig: /k\ntaintKey: a.example/b\nstateDir: /s\ndataDir: /d\nlogFile: none\n" +
		"path: /bin\nprogram: /p\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		again, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseConfig(string(again)); err != nil || back != c {
			t.Errorf("got %+v, %v back, want %+v", back, err, c)
		}
	})
}
