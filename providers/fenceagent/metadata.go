package fenceagent

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// metadata is an agent's description of itself.
type metadata struct {
	options map[string]option // by each name they have
	actions []string
	fabric  bool // its on runs when a node joins the cluster: it cuts off storage or network, not power
}

// option is one key of an agent's input.
type option struct {
	name     string // its newer name; the agent knows it by others, too
	required bool
	usual    string // its default
}

// parseMetadata parses an agent's answer to action=metadata.
func parseMetadata(answer []byte) (*metadata, error) {
	var m struct {
		XMLName    xml.Name `xml:"resource-agent"`
		Parameters []struct {
			Name       string `xml:"name,attr"`
			Required   string `xml:"required,attr"`
			Obsoletes  string `xml:"obsoletes,attr"`
			Deprecated string `xml:"deprecated,attr"`
			Content    struct {
				Default string `xml:"default,attr"`
			} `xml:"content"`
		} `xml:"parameters>parameter"`
		Actions []struct {
			Name      string `xml:"name,attr"`
			Automatic string `xml:"automatic,attr"`
		} `xml:"actions>action"`
	}
	if err := xml.NewDecoder(bytes.NewReader(answer)).Decode(&m); err != nil {
		return nil, fmt.Errorf("its metadata cannot be read: %w", err)
	}
	out := &metadata{options: map[string]option{}}
	newer := map[string]string{}
	for _, p := range m.Parameters {
		if p.Obsoletes != "" {
			newer[p.Obsoletes] = p.Name
		}
	}
	for _, p := range m.Parameters {
		out.options[p.Name] = option{cmp.Or(newer[p.Name], p.Name), out.options[p.Name].required ||
			p.Required == "1" && p.Deprecated != "1", p.Content.Default}
	}
	for _, a := range m.Actions {
		out.actions = append(out.actions, a.Name)
		out.fabric = out.fabric || a.Name == "on" && a.Automatic == "1"
	}
	if len(out.options) == 0 {
		return nil, errors.New("its metadata names no options")
	}
	return out, nil
}

// checkUsable returns why the agent cannot be used here, or nil.
func (m *metadata) checkUsable() error {
	for _, a := range []string{"status", "off", "on"} {
		if !slices.Contains(m.actions, a) {
			return fmt.Errorf("has no action %s: its metadata names %s", a, strings.Join(m.actions, ", "))
		}
	}
	if m.fabric {
		return errors.New(fabric)
	}
	return nil
}

// idOption returns the option for an ID, of an agent whose source was not read: agents of devices with one machine each
// have port_as_ip.
func (m *metadata) idOption() string {
	if _, one := m.options["port_as_ip"]; one {
		return optionIP
	}
	return optionPlug
}

// nameFor returns the name by which the agent knows an option that has an older and a newer name; "" if it knows
// neither.
func (m *metadata) nameFor(name string) string {
	for _, n := range []string{name, olderNames[name]} {
		if _, ok := m.options[n]; ok {
			return n
		}
	}
	return ""
}
