package attest

import (
	"errors"
	"fmt"
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
	p, err := findProof(node, lease, keys)
	off, _, _ := p.LastOff()
	if err == nil {
		err = checkAge("the device was asked", off.At, now, maxAge)
	}
	if err == nil {
		return fmt.Sprintf("%s said %s at %s, signed by key %s", off.From, off.State, off.At.Format(time.RFC3339),
			p.Key), nil
	}
	c, missing := findConfirmation(node, lease)
	if missing == nil {
		missing = checkAge("it was given", c.At, now, maxAge)
	}
	if missing == nil && p.saysOn() { // a person may be at the wrong machine
		missing = errors.New("a device says On")
	}
	if missing == nil {
		return fmt.Sprintf("%s confirmed it at %s", c.By, c.At.Format(time.RFC3339)), nil
	}
	return "", fmt.Errorf("no valid proof: %w; no valid confirmation: %w", err, missing)
}

// findProof returns the signed proof of the fence that is under way. Without an error it has an Off that counts. With
// one it is the zero value, or valid without such an Off.
func findProof(node *corev1.Node, lease *coordinationv1.Lease, keys Keys) (Proof, error) {
	rec, err := taint.RecordOf(node)
	switch {
	case err != nil:
		return Proof{}, err
	case rec == nil:
		return Proof{}, errors.New("forcefence has no fence of the node")
	case rec.Phase != taint.PhaseEvicting:
		return Proof{}, fmt.Errorf("fence %s is in phase %s", rec.ID, rec.Phase)
	case rec.Proof == "":
		return Proof{}, fmt.Errorf("the record of fence %s is not signed", rec.ID)
	}
	p, err := Parse(rec.Proof)
	if err == nil {
		err = p.Check(rec.Token(), node.Name, string(node.UID), keys)
	}
	if err != nil {
		return Proof{}, err
	}
	_, link, ok := p.LastOff()
	switch {
	case !ok:
		return p, fmt.Errorf("no device proved the machine off in fence %s, or one said On since", rec.ID)
	case link.BootID != node.Status.NodeInfo.BootID:
		return p, errors.New("the machine has booted since")
	case link.LeaseRV != leaseVersion(lease):
		return p, errors.New("the node has renewed its Lease since")
	}
	return p, nil
}

func leaseVersion(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	return l.ResourceVersion
}

// findConfirmation returns the confirmation on a node that has renewed no Lease since.
func findConfirmation(node *corev1.Node, lease *coordinationv1.Lease) (*taint.Confirmation, error) {
	c, err := taint.ConfirmationOf(node)
	switch {
	case err != nil:
		return nil, err
	case c == nil:
		return nil, errors.New("a person gives one with `forcefence confirm-off`")
	case c.LeaseRV != leaseVersion(lease):
		return nil, errors.New("the node has renewed its Lease since")
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
