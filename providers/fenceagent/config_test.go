package fenceagent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forcefence/forcefence/providers"
	"github.com/forcefence/forcefence/providers/fenceagent"
)

// An unknown agent must list the needed actions in its metadata, and must not cut off storage.
func TestMetadata(t *testing.T) {
	whole := func(parameters, actions string) string {
		return "echo '<resource-agent><parameters>" + parameters + "</parameters><actions>" + actions +
			"</actions></resource-agent>'"
	}
	for _, tt := range []struct{ name, metadata, want string }{
		{"whole", whole(parameters, actions), ""},
		{"fabric", whole(parameters, strings.Replace(actions, `"0"`, `"1"`, 1)), "the machine runs"},
		{"no status", whole(parameters, strings.Replace(actions, "status", "monitor", 1)), "has no action status"},
		{"no off", whole(parameters, strings.Replace(actions, "off", "disable", 1)), "has no action off"},
		{"no on", whole(parameters, strings.Replace(actions, `"on"`, `"enable"`, 1)), "has no action on"},
		{"no options", whole("", actions), "names no options"},
		{"half of it", whole(parameters, actions) + " | head -c 100", "cannot be read"},
		{"none", "true", "cannot be read"},
		{"an error", whole(parameters, actions) + "; exit 1", "exit status 1"},
		{"a missing library", "echo 'ModuleNotFoundError: No module named suds' >&2; exit 1", "No module named suds"},
		{"another document", "echo '<html><body/></html>'", "cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := agent(t, tt.metadata, "touch \"$dir/ran\"")
			problems := c.Validate()
			if (tt.want == "") != (len(problems) == 0) ||
				tt.want != "" && !strings.Contains(problems[0].Text, tt.want) {
				t.Errorf("got %v, want %q", problems, tt.want)
			}
			if _, err := fenceagent.New(c, providers.Options{}); (err == nil) != (tt.want == "") {
				t.Errorf("New: %v", err)
			}
			if _, err := os.Stat(filepath.Join(c.Dir, "ran")); err == nil {
				t.Error("something else than the metadata was asked for")
			}
		})
	}
}

// The metadata is read once, however often the configuration is looked at.
func TestMetadataIsReadOnce(t *testing.T) {
	c := agent(t,
		`echo >> "$dir/runs"; echo '<resource-agent><parameters>`+parameters+`</parameters><actions>`+actions+
			`</actions></resource-agent>'`, "")
	newProvider(t, c, nil)
	_, _, _ = c.CanonicalID("1")
	if c.HasAddressIDs() || read(t, c.Dir, "runs") != "\n" {
		t.Errorf("%q", read(t, c.Dir, "runs"))
	}
}

// An agent that is not there may be elsewhere: check-config --skip-files passes it over.
func TestNoAgent(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		c := &fenceagent.Config{Agent: "fence_not_there", Dir: dir, AllowGuessedOff: true, AllowInsecure: true}
		if p := c.Validate(); len(p) != 1 || !errors.Is(p[0].Err, fs.ErrNotExist) {
			t.Errorf("dir %q: got %v", dir, p)
		}
	}
	c := &fenceagent.Config{Agent: "fence_bladecenter", Dir: "sbin"}
	if got := paths(c.Validate()); got != "dir agent" {
		t.Errorf("problems at %q", got)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "fence_script"), []byte("#!/nonexistent/python\n"), 0o700))
	c = &fenceagent.Config{Agent: "fence_script", Dir: dir, AllowGuessedOff: true, AllowInsecure: true}
	if p := c.Validate(); len(p) != 1 || !strings.Contains(p[0].Text, "does not start") {
		t.Errorf("got %v", p)
	}
}

// IDs go into shells, here and on devices: no ID is more than one word, an option, or two plugs.
func TestIDs(t *testing.T) {
	for _, tt := range []struct{ agent, id, canonical, host string }{
		{"fence_apc", "7", "7", ""},
		{"fence_vmware_soap", "/Lab/vm/node-7", "/Lab/vm/node-7", ""},
		{"fence_xenapi", "a1B2", "a1B2", ""},
		{"fence_apc", "3,7", "", ""},
		{"fence_apc", "-x", "", ""},
		{"fence_apc", "7 8", "", ""},
		{"fence_apc", "7\naction=off", "", ""},
		{"fence_apc", "$(reboot)", "", ""},
		{"fence_apc", "7;reboot", "", ""},
		{"fence_apc", "", "", ""},
		{"fence_ipmilan", "10.0.0.7", "10.0.0.7", "10.0.0.7"},
		{"fence_ipmilan", "BMC-7.Example.", "bmc-7.example", "bmc-7.example"},
		{"fence_ipmilan", "[FD00::7]", "fd00::7", "fd00::7"},
		{"fence_ipmilan", "::ffff:10.0.0.7", "10.0.0.7", "10.0.0.7"},
		{"fence_ipmilan", "10.0.0.7:623", "", ""},
		{"fence_ipmilan", "fe80::1%eth0", "", ""},
		{"fence_ipmilan", ":;reboot", "", ""},
		{"fence_ipmilan", "-H", "", ""},
		{"fence_ipmilan", "https://10.0.0.7", "", ""},
		{"fence_ipmilan", "fence:hunter2@10.0.0.7", "", ""},
		{"fence_ipmilan", "10.0.0.7 -P x", "", ""},
		{"fence_ipmilan", "10.0.0.7,10.0.0.8", "", ""},
		{"fence_ipmilan", "..", "", ""},
	} {
		c := &fenceagent.Config{Agent: tt.agent}
		if c.HasAddressIDs() != (tt.agent == "fence_ipmilan") {
			t.Errorf("%s: Addresses %t", tt.agent, c.HasAddressIDs())
		}
		canonical, hosts, err := c.CanonicalID(tt.id)
		if canonical != tt.canonical || strings.Join(hosts, " ") != tt.host || (err == nil) != (tt.canonical != "") {
			t.Errorf("%s %q: got %q, %q, %v; want %q, %q", tt.agent, tt.id, canonical, hosts, err, tt.canonical,
				tt.host)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error repeats it: %v", tt.id, err)
		}
		if again, _, err := c.CanonicalID(canonical); canonical != "" && (again != canonical || err != nil) {
			t.Errorf("%q is written in two ways: %q, %v", canonical, again, err)
		}
	}
	// The metadata of an unknown agent shows whether it takes an address.
	c := agent(t,
		`echo '<resource-agent><parameters><parameter name="ipaddr"/><parameter name="port_as_ip"/></parameters>`+
			`<actions>`+actions+`</actions></resource-agent>'`,
		"echo 'Status: ON'")
	p := newProvider(t, c, nil)
	if !c.HasAddressIDs() {
		t.Error("an ID is no address")
	}
	wants(t, ask(t, p, providers.Target{Node: "n1", ID: "10.0.0.7"}), providers.PowerOn, "Status: ON", "ok")
	if got := read(t, c.Dir, "input"); got != "action=status\nipaddr=10.0.0.7" {
		t.Errorf("input: got %q", got)
	}
}

// All plugs, and all devices, share the limits of the machine that runs their agents.
func TestLimits(t *testing.T) {
	p := newProvider(t, script(t, ""), nil)
	a, b := p.LimitGroup(n1), p.LimitGroup(providers.Target{Node: "n2", ID: "2"})
	if a == "" || a != b {
		t.Errorf("got %q and %q", a, b)
	}
}

// Outlets answer for a machine without power. All other agents' devices may not, and so an agent that was not read.
func TestSharesPower(t *testing.T) {
	for agent, want := range map[string]bool{
		"fence_apc": false, "fence_raritan_px3": false, "fence_wti": false,
		"fence_ipmilan": true, "fence_hpblade": true, "fence_virsh": true, "fence_gce": true, "fence_of_my_own": true,
	} {
		if got := (&fenceagent.Config{Agent: agent}).SharesPower(); got != want {
			t.Errorf("%s: got %t, want %t", agent, got, want)
		}
	}
	for _, agent := range fenceagent.Outlets {
		if !fenceagent.IsKnown(agent) {
			t.Errorf("%s is an outlet's agent that was not read", agent)
		}
	}
}
