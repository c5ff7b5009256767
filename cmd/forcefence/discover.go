package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/cmd/internal/config"
	"github.com/forcefence/forcefence/cmd/internal/discover"
	"github.com/forcefence/forcefence/cmd/internal/version"
	"github.com/forcefence/forcefence/providers/remote"
)

// newDiscover returns the command that writes a configuration from what it finds.
func newDiscover(d *sessionFlags) *cobra.Command {
	var o discoverFlags
	var scanner discover.Scanner
	var addresses []netip.Addr
	cmd := &cobra.Command{
		Use:   "discover",
		Short: "Write a configuration from Nodes: BareMetalHosts, a range of BMCs' addresses, a cloud, or kind",
		Long: `Write a configuration to standard output. If all nodes are in one cloud, or are
containers of kind, it writes that type. Otherwise the command finds the device
of each node by the BareMetalHosts of Metal3, and by asking the addresses of
--bmc-range for BMCs: a BMC is a node's if one of its systems has the node's
system UUID. To standard error it lists what matched, and what did not, and why.

It asks Redfish services and IPMI BMCs whether they are there, which needs no
password. With --username and --password-file it logs in to Redfish BMCs to list
their systems. A password goes only to a BMC whose certificate the authority of
--ca-file signed, or whose address --trust-host names, and never over plain HTTP.
The command powers nothing off, and writes nothing to the cluster.

The configuration has no password. It names the files in which the manifests of
deploy/ mount the Secrets.

Exits with 0 if at least one node has a device, and with 1 otherwise.`,
		Example: `  # Which BMCs answer, and which node each one belongs to
  forcefence discover --bmc-range 10.0.0.0/28 --username admin --password-file password --ca-file ca.pem`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) (err error) {
			scanner, addresses, err = o.scanner()
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := d.openClient()
			if err != nil {
				return err
			}
			over := fmt.Errorf("--timeout %s is over", o.timeout)
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), o.timeout, over)
			defer cancel()
			report := cmd.ErrOrStderr()
			nodes, hosts, err := readMachines(ctx, c, report)
			if err != nil {
				return err
			}
			bmcs, late := scanner.Scan(ctx, addresses)
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			result := discover.Devices(nodes, hosts, bmcs)
			if err := printDiscovery(report, result, bmcs, len(addresses)); err != nil {
				return err
			}
			if late != nil {
				printText(report, "", "%s.", late)
			}
			if len(result.Matches) == 0 && result.Cloud == "" {
				return errors.New("no node's device was found, so no configuration is written: name the BMCs' " +
					"addresses by --bmc-range, or write one by hand (forcefence providers lists the types of devices)")
			}
			text, err := result.Configuration(discover.WriteOptions{Username: o.username, CA: o.caFile != ""})
			if err != nil {
				return err
			}
			if _, err := config.Parse(cmp.Or(o.output, "config.yaml"), text, d.types, config.SkipFiles()); err != nil {
				return fmt.Errorf("the configuration that was found has faults, so it is not written:\n%w", err)
			}
			return o.write(cmd.OutOrStdout(), report, text)
		},
	}
	d.clusterFlags.addFlags(cmd)
	o.addFlags(cmd)
	for _, file := range []string{"ca-file", "password-file", "output"} {
		completeFlag(cmd, file, completeFiles)
	}
	return withRole(cmd, rolePrepare)
}

// discoverFlags are the command's own flags.
type discoverFlags struct {
	ranges, trusted        []string
	redfishPort, ipmiPort  int
	username, passwordFile string
	caFile, output         string
	timeout                time.Duration
}

func (o *discoverFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.ranges, "bmc-range", nil,
		fmt.Sprintf("addresses to ask for BMCs, such as 10.0.0.0/28; at most %d in all", discover.MaxAddresses))
	f.IntVar(&o.redfishPort, "redfish-port", 443, "the port of Redfish in that range")
	f.IntVar(&o.ipmiPort, "ipmi-port", 623, "the port of IPMI in that range")
	f.StringVar(&o.username, "username", "",
		"the user on the BMCs (default: the command does not log in, and writes the user forcefence)")
	f.StringVar(&o.passwordFile, "password-file", "", "the file with the password of that user")
	f.StringVar(&o.caFile, "ca-file", "", "the certificate of the authority that signed the BMCs' certificates, in PEM")
	f.StringSliceVar(&o.trusted, "trust-host", nil, "addresses of the range that get the password with any certificate")
	f.StringVar(&o.output, "output", "", "the file to write, which must not exist (default: standard output)")
	f.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long the whole command may take")
}

// scanner checks the flags, and returns what asks the addresses.
func (o *discoverFlags) scanner() (s discover.Scanner, addresses []netip.Addr, err error) {
	if o.timeout <= 0 {
		return s, nil, fmt.Errorf("--timeout: %s is no time to wait", o.timeout)
	}
	for _, port := range []struct {
		flag string
		of   int
	}{{"redfish-port", o.redfishPort}, {"ipmi-port", o.ipmiPort}} {
		if port.of < 1 || port.of > 65535 {
			return s, nil, fmt.Errorf("--%s: %d is no port: use 1 to 65535", port.flag, port.of)
		}
	}
	if _, err := os.Lstat(o.output); o.output != "" && err == nil {
		return s, nil, fmt.Errorf("--output: %s exists: name another file, or remove it", o.output)
	}
	if addresses, err = discover.ParseRanges(o.ranges); err != nil {
		return s, nil, fmt.Errorf("--bmc-range: %w", err)
	}
	for _, text := range o.trusted {
		ip, err := netip.ParseAddr(text)
		if err != nil || !slices.Contains(addresses, ip) {
			return s, nil, fmt.Errorf("--trust-host: %q is no address of --bmc-range", text)
		}
		s.Named = append(s.Named, ip)
	}
	if (o.username == "") != (o.passwordFile == "") {
		return s, nil, errors.New("--username and --password-file go together")
	}
	s.Credentials = remote.Credentials{Username: o.username, PasswordFile: o.passwordFile}
	s.RedfishPort, s.IPMIPort, s.CAFile, s.Agent = o.redfishPort, o.ipmiPort, o.caFile, version.UserAgent("forcefence")
	if o.username == "" {
		o.username = "forcefence"
		return s, addresses, nil
	}
	for _, problem := range append(s.Credentials.Validate(), (&remote.Trust{CAFile: o.caFile}).Validate()...) {
		return s, nil, fmt.Errorf("--username, --password-file or --ca-file: %s", problem.Text)
	}
	return s, addresses, nil
}

// write writes the configuration to the file, which must not exist, or to standard output.
func (o *discoverFlags) write(out, report io.Writer, text []byte) error {
	if o.output == "" {
		_, err := out.Write(text)
		return err
	}
	f, err := os.OpenFile(o.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	printText(report, "", "Wrote %s.", o.output)
	return nil
}

// readMachines reads the Nodes, and the BareMetalHosts if the cluster has any. What cannot be read of the latter goes
// to report.
func readMachines(ctx context.Context, c client.Client, report io.Writer) (
	nodes []*corev1.Node, hosts []discover.Host, _ error,
) {
	err := eachObject(ctx, c, func() *corev1.NodeList { return &corev1.NodeList{} }, func(o runtime.Object) error {
		nodes = append(nodes, o.(*corev1.Node))
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	list := func() *unstructured.UnstructuredList {
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(discover.HostKind.GroupVersion().WithKind(discover.HostKind.Kind + "List"))
		return u
	}
	err = eachObject(ctx, c, list, func(o runtime.Object) error {
		hosts = append(hosts, discover.HostOf(o.(*unstructured.Unstructured)))
		return nil
	})
	switch {
	case meta.IsNoMatchError(err):
	case err != nil && ctx.Err() != nil:
		return nil, nil, fmt.Errorf("listing BareMetalHosts: %w", err)
	case err != nil:
		printText(report, "", "BareMetalHosts are left out: %s", endSentence(describeUnread(err, rolePrepare)))
	}
	return nodes, hosts, nil
}

// printDiscovery lists what matched, and what did not.
func printDiscovery(out io.Writer, r discover.Result, bmcs []discover.BMC, asked int) error {
	switch r.Cloud {
	case discover.EC2:
		printText(out, "", "Nodes: %d, all of them instances of EC2, in %s.", r.NodeCount,
			strings.Join(r.Regions, ", "))
	case discover.GCE, discover.Azure, discover.OpenStack, discover.DigitalOcean, discover.Hetzner, discover.UpCloud:
		printText(out, "", "Nodes: %d, all of them machines of the cloud %s.", r.NodeCount, r.Cloud)
	case discover.Containers:
		printText(out, "", "Nodes: %d, all of them containers of kind.", r.NodeCount)
	default:
		printText(out, "", "Nodes with a device: %d of %d. Addresses that answered: %d of %d.", len(r.Matches),
			r.NodeCount, len(bmcs), asked)
	}
	matched, left := newTable("Node", "Device", "Found by"), newTable("Not matched", "Why")
	for _, m := range r.Matches {
		addRow(matched, nodeNamed(m.Node), m.Node, m.ID, m.By)
	}
	products := map[string]string{}
	for _, b := range bmcs {
		products[b.ID] = b.Product
	}
	for _, n := range r.Nodes {
		addRow(left, nodeNamed(n.Name), "node "+n.Name, n.Why)
	}
	for _, d := range r.Devices {
		name := d.Name
		if p := products[name]; p != "" {
			name += fmt.Sprintf(" %q", p)
		}
		addRow(left, nodeNamed(d.Name), name, d.Why)
	}
	for _, t := range []*metav1.Table{matched, left} {
		if len(t.Rows) == 0 {
			continue
		}
		fmt.Fprintln(out)
		if err := printTable(out, t, false); err != nil {
			return err
		}
	}
	fmt.Fprintln(out)
	return nil
}
