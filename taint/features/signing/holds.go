package signing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/forcefence/forcefence/taint"
)

// maxSkew is how far the clock of a signer, or of a person who confirms, may be ahead of the reader's.
const maxSkew = time.Minute

// FindOff returns what shows now that a node's machine is off, for a person: the signed answer of a device in the fence
// that is under way, or a person's confirmation. Neither may be older than maxAge, and the node must not have shown
// life since. The error says why neither counts. lease is the node's, nil if it has none. Both objects must be read
// live.
func FindOff(
	node *corev1.Node, lease *coordinationv1.Lease, keys Keys, now time.Time, maxAge time.Duration,
) (string, error) {
	leaseRV := leaseVersion(lease)
	p, err := findProof(node, leaseRV, keys)
	off, _, _ := p.LastOff()
	if err == nil {
		err = checkAge("the device was asked", off.At, now, maxAge)
	}
	if err == nil {
		return fmt.Sprintf("%s said %s at %s, signed by key %s", off.From, off.State, off.At.Format(time.RFC3339),
			p.Key), nil
	}
	c, missing := findConfirmation(node, leaseRV, p)
	if missing == nil {
		missing = checkAge("it was given", c.At, now, maxAge)
	}
	if missing == nil {
		return fmt.Sprintf("%s confirmed it at %s", c.By, c.At.Format(time.RFC3339)), nil
	}
	return "", noneHolds(err, missing)
}

// FindRefusal returns FindOff's error where it is certain without keys, clock and maxAge: a signed proof and a
// confirmation were valid at best, and neither holds any more. It returns nil otherwise, also for a record without a
// proof. leaseRV is the resourceVersion of the node's Lease, "" if it has none. The caller trusts the record.
func FindRefusal(node *corev1.Node, leaseRV string) error {
	rec, err := findSigned(node)
	if err != nil {
		return nil
	}
	p, err := Parse(rec.Proof)
	if err != nil || p.Fence != rec.Token() || p.Node != node.Name || p.NodeUID != string(node.UID) {
		return nil
	}
	err = p.checkOff(rec, node, leaseRV)
	_, missing := findConfirmation(node, leaseRV, p)
	if err == nil || missing == nil {
		return nil
	}
	return noneHolds(err, missing)
}

func noneHolds(proof, confirmation error) error {
	return fmt.Errorf("no valid proof: %w; no valid confirmation: %w", proof, confirmation)
}

// RefusedDetach returns why the proof guard refuses to detach the volumes of a CSI driver from a node: FindRefusal's
// error. It returns nil if the guard asks for no proof about them.
func RefusedDetach(node *corev1.Node, driver, leaseRV string) error {
	if !NeedsProof(node, "kubernetes.io/csi/"+driver+"^") {
		return nil
	}
	return FindRefusal(node, leaseRV)
}

// NeedsProof reports whether the proof guard lets a volume of a node be detached only by FindOff: the node is not
// Ready, and reports the volume in use. What it does not report it has unmounted, or the fence has cleared. volume is a
// name of the Node's lists. One that ends with ^ means all volumes whose names begin so.
func NeedsProof(node *corev1.Node, volume string) bool {
	return !IsReady(node) && slices.ContainsFunc(node.Status.VolumesInUse, func(n corev1.UniqueVolumeName) bool {
		return string(n) == volume || strings.HasSuffix(volume, "^") && strings.HasPrefix(string(n), volume)
	})
}

// IsReady reports whether the Node's Ready condition is True. The proof guard then asks for no proof about its pods and
// volumes.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// findProof returns the signed proof of the fence that is under way. Without an error it has an Off that counts. With
// one it is the zero value, or valid without such an Off.
func findProof(node *corev1.Node, leaseRV string, keys Keys) (Proof, error) {
	rec, err := findSigned(node)
	if err != nil {
		return Proof{}, err
	}
	p, err := Parse(rec.Proof)
	if err == nil {
		err = p.Check(rec.Token(), node.Name, string(node.UID), keys)
	}
	if err != nil {
		return Proof{}, err
	}
	return p, p.checkOff(rec, node, leaseRV)
}

// findSigned returns the record of the fence that is under way, if it has a proof.
func findSigned(node *corev1.Node) (*taint.Record, error) {
	rec, err := taint.RecordOf(node)
	switch {
	case err != nil:
		return nil, err
	case rec == nil:
		return nil, errors.New("forcefence has no fence of the node")
	case rec.Phase != taint.PhaseEvicting:
		return nil, fmt.Errorf("fence %s is in phase %s", rec.ID, rec.Phase)
	case rec.Proof == "":
		return nil, fmt.Errorf("the record of fence %s is not signed", rec.ID)
	}
	return rec, nil
}

// checkOff returns why a valid proof of a node's record has no Off that counts.
func (p Proof) checkOff(rec *taint.Record, node *corev1.Node, leaseRV string) error {
	_, link, ok := p.LastOff()
	switch {
	case !ok:
		return fmt.Errorf("no device proved the machine off in fence %s, or one said On since", rec.ID)
	case link.BootID != node.Status.NodeInfo.BootID:
		return errors.New("the machine has booted since")
	case link.LeaseRV != leaseRV:
		return errors.New("the node has renewed its Lease since")
	}
	return nil
}

func leaseVersion(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return l.ResourceVersion
}

// findConfirmation returns the confirmation on a node that has renewed no Lease since. p is the proof of its fence, or
// the zero value.
func findConfirmation(node *corev1.Node, leaseRV string, p Proof) (*taint.Confirmation, error) {
	c, err := taint.ConfirmationOf(node)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, errors.New("a person gives one with `forcefence confirm-off NODE --reason TEXT`")
	case c.LeaseRV != leaseRV:
		return nil, errors.New("the node has renewed its Lease since")
	case p.saysOn(): // a person may be at the wrong machine
		return nil, errors.New("a device says On")
	}
	return c, nil
}

func checkAge(what string, at, now time.Time, maxAge time.Duration) error {
	switch age := now.Sub(at); {
	case age > maxAge:
		return fmt.Errorf("%s %s ago, which is longer than %s", what, age.Round(time.Second), maxAge)
	case age < -maxSkew:
		return fmt.Errorf("%s in the future, at %s: a clock is wrong", what, at.Format(time.RFC3339))
	}
	return nil
}
