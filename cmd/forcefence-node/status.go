package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forcefence/forcefence/kubelet-admit/install"
	"github.com/forcefence/forcefence/kubelet-admit/nri"
)

// statusHeld is the exit status while pods are held. 1 is any failure, and shells use 2 themselves.
const statusHeld exitStatus = 3

func newStatus() *cobra.Command {
	var host hostFlags
	var stateDir, output, ready string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the hook of this host knows and holds",
		Long: "Show whether the node is marked, which pods are held, since when and why, which plugins are\n" +
			"connected, and the node's protection. It reads the hook's status files and asks the runtime, not the\n" +
			"API server.\n\n" +
			"Exit status: 0 if no pod is held; 3 if pods are held; 1 if no plugin runs or something failed.\n" +
			"With --ready: 0 if the plugin of that index (" + nri.PreInstalledIndex + " the runtime's, " +
			nri.DaemonIndex + " the DaemonSet's) is registered with the runtime,\nelse 1.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return fmt.Errorf("--output %q: text or json", output)
			}
			if _, err := host.enterRoot(nri.DefaultPath); err != nil {
				return err
			}
			plugins, err := readBootStatuses(stateDir)
			if err != nil {
				return err
			}
			if ready != "" {
				return checkReady(plugins, ready)
			}
			host.site.StateDir = stateDir
			v := newHookStatus(plugins)
			if p, err := install.ReadProtection(cmd.Context(), host.site); err != nil {
				v.Problem = err.Error() // the plugins' own statuses are still worth printing
			} else {
				v.Protection = &p
			}
			if err := v.printStatus(cmd.OutOrStdout(), output, time.Now()); err != nil {
				return err
			}
			return v.exitError()
		},
	}
	host.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&stateDir, "state-dir", nri.DefaultStateDir, "where the hook's status files are")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	cmd.Flags().StringVar(&ready, "ready", "",
		"only check that the plugin of this index is registered; without a value "+nri.DaemonIndex)
	cmd.Flags().Lookup("ready").NoOptDefVal = nri.DaemonIndex
	return cmd
}

// readBootStatuses returns the plugins' statuses since the machine booted.
func readBootStatuses(stateDir string) ([]nri.Status, error) {
	all, err := nri.ReadStatuses(stateDir)
	if err != nil {
		return nil, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("reading the machine's boot id: %w", err)
	}
	return slices.DeleteFunc(all, func(s nri.Status) bool { return s.BootID != strings.TrimSpace(string(boot)) }), nil
}

func checkReady(plugins []nri.Status, index string) error {
	i := slices.IndexFunc(plugins, func(s nri.Status) bool { return strings.HasPrefix(s.Plugin, index+"-") })
	if i < 0 {
		return fmt.Errorf("plugin %s-%s has not run on this boot", index, nri.BaseName)
	}
	if plugins[i].Registered.IsZero() {
		return fmt.Errorf("%s is not registered with the runtime", plugins[i].Plugin)
	}
	return nil
}

// hookStatus is what the command status reports.
type hookStatus struct {
	Node       string              `json:"node,omitempty"`
	Mark       string              `json:"mark,omitempty"`
	Clear      bool                `json:"clear"` // a plugin is registered, and no pod is held
	Protection *install.Protection `json:"protection,omitempty"`
	Problem    string              `json:"problem,omitempty"` // why the protection is not known
	Held       []nri.Held          `json:"held"`
	Plugins    []nri.Status        `json:"plugins"`
}

// newHookStatus merges the plugins' statuses. The plugin that read the Node last knows the mark; each of them may hold
// a pod.
func newHookStatus(plugins []nri.Status) hookStatus {
	v := hookStatus{Plugins: plugins, Held: []nri.Held{}}
	var at time.Time
	byUID := map[string]nri.Held{}
	for _, s := range plugins {
		v.Node = cmp.Or(v.Node, s.Node.Name)
		if s.Node.At.After(at) {
			at, v.Mark = s.Node.At, s.Node.Mark
		}
		if s.Registered.IsZero() {
			continue // it is not asked about pods any more
		}
		v.Clear = true
		for _, h := range s.Held {
			if known, ok := byUID[h.UID]; ok {
				if known.Since.Before(h.Since) {
					h.Since = known.Since
				}
				h.Times = max(h.Times, known.Times)
			}
			byUID[h.UID] = h
		}
	}
	for _, h := range byUID {
		v.Held = append(v.Held, h)
	}
	slices.SortFunc(v.Held, func(a, b nri.Held) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.Clear = v.Clear && len(v.Held) == 0
	return v
}

func (v hookStatus) exitError() error {
	switch {
	case v.Clear:
		return nil
	case len(v.Held) > 0:
		return statusHeld
	default:
		return fmt.Errorf("cannot tell whether pods are held: no plugin is registered with the runtime")
	}
}

func (v hookStatus) printStatus(w io.Writer, output string, now time.Time) error {
	if output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	var b strings.Builder
	mark := "not marked"
	switch {
	case v.Mark != "":
		mark = "marked " + v.Mark
	case !slices.ContainsFunc(v.Plugins, func(s nri.Status) bool { return s.Node.Read }):
		mark = "not read on this boot"
	}
	fmt.Fprintf(&b, "node:        %s: %s\n", cmp.Or(v.Node, "unknown"), mark)
	if v.Protection != nil {
		fmt.Fprintf(&b, "protection:  %s: %s\n", v.Protection.Level, v.Protection.Sentence())
	} else {
		fmt.Fprintf(&b, "protection:  unknown: %s\n", v.Problem)
	}
	for _, s := range v.Plugins {
		state := "not registered"
		if !s.Registered.IsZero() {
			state = fmt.Sprintf("registered with %s for %s", cmp.Or(s.Runtime, "the runtime"),
				roundedAge(now, s.Registered))
		}
		fmt.Fprintf(&b, "plugin:      %s %s: %s\n", s.Plugin, s.Version, state)
		if s.Error != "" {
			fmt.Fprintf(&b, "             reading the API server: %s\n", s.Error)
		}
	}
	if len(v.Plugins) == 0 {
		fmt.Fprintln(&b, "plugin:      none has run on this boot")
	}
	for _, h := range v.Held {
		fmt.Fprintf(&b, "held:        %s/%s for %s, asked %d times: %s\n", h.Namespace, h.Name,
			roundedAge(now, h.Since), h.Times, h.Why)
	}
	if len(v.Held) == 0 {
		fmt.Fprintln(&b, "held:        no pod")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func roundedAge(now, since time.Time) time.Duration { return now.Sub(since).Round(time.Second) }
