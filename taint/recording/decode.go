package recording

import (
	"encoding/json"
	"fmt"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/reason"
)

// body reads the body of a line.
func body[T any](l Line) (out T, err error) {
	if len(l.Body) == 0 {
		return out, nil
	}
	if err = json.Unmarshal(l.Body, &out); err != nil {
		return out, fmt.Errorf("%s of node %s: %s", Clean(string(l.Kind)), Clean(l.Node), Clean(err.Error()))
	}
	return out, nil
}

// Memory is what policies remember of the node at the beginning of a course.
func (l Line) Memory() (policy.Memory, error) { return body[policy.Memory](l) }

// Step is the decision that a line of the kind Next has. What an earlier forcefence wrote beside it, and no action has,
// is left out: that a read or a record is of a node which came back, and the record of what shadow mode said before.
func (l Line) Step() (Step, error) {
	s, err := body[Step](l)
	switch {
	case s.Do == "Read", s.Do == "Write":
		s.Returned = false
	case s.Why == string(reason.Shadowed) && s.Would == "":
		s.Record, s.Phase = "", ""
	}
	return s, err
}

// Observation reads a line of any other kind but Cut. key is the mark's.
func (l Line) Observation(key string) (decide.Observation, error) {
	switch l.Kind {
	case Life:
		return l.nodeRead(key)
	case Pods:
		of, err := body[[]action.Pod](l)
		return decide.PodsListed{Pods: of}, err
	case Volumes:
		of, err := body[map[string][]action.Volume](l)
		return decide.VolumesRead{Of: of}, err
	case Owners:
		of, err := body[map[string]action.Owner](l)
		return decide.OwnersRead{Of: of}, err
	case Rival:
		why, err := body[string](l)
		return decide.RivalRead{Why: why}, err
	case Members:
		ready, err := body[map[string]bool](l)
		return decide.MembersRead{Ready: ready}, err
	case Waiting:
		of, err := body[map[string]bool](l)
		return decide.WaitingRead{Claims: of}, err
	case Claims:
		of, err := body[map[string]string](l)
		return decide.ClaimsRead{Of: of}, err
	case Cached, Listed:
		of, err := body[[]action.Attachment](l)
		return decide.AttachmentsListed{Attachments: of, Live: l.Kind == Listed}, err
	case Answers:
		return l.devicesAnswered()
	case Did:
		return l.actionDone()
	case Storage:
		return l.storageHeard()
	case Rests: // its look is not written: what policies keep of it stands where the next course begins
		return decide.Rested{}, nil
	default:
		return nil, fmt.Errorf("%s is nothing that this version knows", Clean(string(l.Kind)))
	}
}

func (l Line) nodeRead(key string) (decide.Observation, error) {
	in, err := body[lived](l)
	if err != nil {
		return nil, err
	}
	facts, err := in.Facts.facts(l.NewID)
	if err == nil && in.Node != nil && in.Node.Name != l.Node {
		err = fmt.Errorf("a line of node %s shows another Node", Clean(l.Node))
	}
	look := LookAt(in.Node, taint.Look{Sent: l.Sent, Got: l.At, LeaseRV: in.Lease, LeaseDuration: in.LeaseDuration}, key)
	return decide.NodeRead{Look: look, Facts: facts, Node: in.Node, Elsewhere: in.Facts.Elsewhere}, err
}

func (l Line) storageHeard() (decide.Observation, error) {
	in, err := body[storageSays](l)
	if err != nil {
		return nil, err
	}
	ps, err := policiesOf(in.Policies)
	return decide.StorageHeard{Policies: ps, Says: in.Says}, err
}

func (l Line) devicesAnswered() (decide.Observation, error) {
	in, err := body[[]answer](l)
	var out decide.DevicesAnswered
	for _, a := range in {
		one, bad := a.answer()
		if bad != nil {
			return nil, bad
		}
		out.Answers = append(out.Answers, one)
	}
	return out, err
}

func (l Line) actionDone() (decide.Observation, error) {
	in, err := body[outcome](l)
	for _, how := range in.How {
		if how > action.TooLarge {
			return nil, fmt.Errorf("%d is no way in which a write ends", how)
		}
	}
	return decide.ActionDone{Err: in.Err.err(), Sent: in.Sent, Late: in.Late, How: in.How}, err
}
