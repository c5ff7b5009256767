package signing

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/api"
)

// CheckFencing returns the proof of a Fencing. The error names everything that makes the object worth no trust: its
// proof is not valid, or the object has an answer or a result that the proof does not have. An object that a person's
// release ended has a result that no controller signed.
func CheckFencing(f *api.Fencing, keys Keys) (Proof, error) {
	if f.Status.Proof == "" {
		return Proof{}, fmt.Errorf("%w: the Fencing has none, because the controller had no key (signing.keyFile)",
			ErrProof)
	}
	p, err := Parse(f.Status.Proof)
	if err != nil {
		return Proof{}, err
	}
	token := taint.Record{ID: f.Spec.ID, Since: f.Spec.StartedAt.Time}.Token()
	faults := []error{p.Check(token, f.Spec.Node, f.Spec.NodeUID, keys)}
	for _, a := range f.Status.Evidence {
		if !slices.ContainsFunc(p.Links, func(l Link) bool {
			return slices.ContainsFunc(l.Answers, func(e taint.Evidence) bool {
				return e.At.Equal(a.At.Time) && e.From == a.From && e.State == a.State && e.Raw == a.Raw
			})
		}) {
			faults = append(faults, fmt.Errorf("%w: the Fencing says that %q answered %q at %s, which is not signed",
				ErrProof, a.From, a.State, a.At.UTC().Format(time.RFC3339)))
		}
	}
	last, r := p.Links[len(p.Links)-1], taint.Result(f.Status.Result)
	released := r == taint.ResultReleased && last.Result == ""
	if !released && (f.Status.Phase != string(last.Phase) || r != last.Result) {
		faults = append(faults, fmt.Errorf("%w: the Fencing is in phase %q with result %q, and the last signed link "+
			"in %s with result %q", ErrProof, f.Status.Phase, f.Status.Result, last.Phase, last.Result))
	}
	return p, errors.Join(faults...)
}
