package recording

import (
	"encoding/json"
	"fmt"

	"github.com/forcefence/forcefence/taint"
	"github.com/forcefence/forcefence/taint/decide"
	"github.com/forcefence/forcefence/taint/decide/action"
	"github.com/forcefence/forcefence/taint/decide/policy"
)

// decodeBody decodes the body of a line. A line without one gives the zero value.
func decodeBody[T any](l Line) (out T, err error) {
	if len(l.Body) == 0 {
		return out, nil
	}
	if err = json.Unmarshal(l.Body, &out); err != nil {
		return out, fmt.Errorf("%s of node %s: %s", CleanText(string(l.Kind)), CleanText(l.Node),
			CleanText(err.Error()))
	}
	return out, nil
}

// DecodeMemory returns what policies remember of the node when a course begins.
func (l Line) DecodeMemory() (policy.Memory, error) { return decodeBody[policy.Memory](l) }

// DecodeStep returns the decision of a line of the kind Next.
func (l Line) DecodeStep() (Step, error) { return decodeBody[Step](l) }

// DecodeObservation decodes a line of any other kind but Truncated. key is the mark's taint key.
func (l Line) DecodeObservation(key string) (decide.Observation, error) {
	switch l.Kind {
	case NodeRead:
		return l.nodeRead(key)
	case Pods:
		of, err := decodeBody[[]action.Pod](l)
		return decide.PodsListed{Pods: of}, err
	case Volumes:
		of, err := decodeBody[map[string][]action.Volume](l)
		return decide.VolumesRead{ByPod: of}, err
	case Owners:
		of, err := decodeBody[map[string]action.Owner](l)
		return decide.OwnersRead{ByPod: of}, err
	case StorageSetting:
		why, err := decodeBody[string](l)
		return decide.StorageSettingRead{Why: why}, err
	case EtcdPods:
		ready, err := decodeBody[map[string]bool](l)
		return decide.EtcdPodsListed{Ready: ready}, err
	case AwaitedClaims:
		of, err := decodeBody[map[string]bool](l)
		return decide.AwaitedClaimsRead{Claims: of}, err
	case Claims:
		of, err := decodeBody[map[string]string](l)
		return decide.ClaimsRead{ByVolume: of}, err
	case CachedAttachments, LiveAttachments:
		of, err := decodeBody[[]action.Attachment](l)
		return decide.AttachmentsListed{Attachments: of, Live: l.Kind == LiveAttachments}, err
	case Answers:
		return l.devicesAnswered()
	case ActionDone:
		return l.actionDone()
	case Storage:
		return l.storageHeard()
	case Rests: // its look is not written: the next course begins with what policies keep of it
		return decide.NodeIdle{}, nil
	default:
		return nil, fmt.Errorf("kind %s is not known to this version", CleanText(string(l.Kind)))
	}
}

func (l Line) nodeRead(key string) (decide.Observation, error) {
	in, err := decodeBody[nodeBody](l)
	if err != nil {
		return nil, err
	}
	facts, err := in.Facts.toFacts(l.NewID)
	if err == nil && in.Node != nil && in.Node.Name != l.Node {
		err = fmt.Errorf("a line of node %s has another Node", CleanText(l.Node))
	}
	look := lookAt(in.Node, taint.Look{Sent: l.Sent, Got: l.At, LeaseRV: in.LeaseRV, LeaseDuration: in.LeaseDuration},
		key)
	return decide.NodeRead{Look: look, Facts: facts, Node: in.Node}, err
}

func (l Line) storageHeard() (decide.Observation, error) {
	in, err := decodeBody[storageBody](l)
	if err != nil {
		return nil, err
	}
	ps, err := policiesOf(in.Policies)
	return decide.StorageReported{Policies: ps, Health: in.Health}, err
}

func (l Line) devicesAnswered() (decide.Observation, error) {
	in, err := decodeBody[[]answer](l)
	var out decide.DevicesAnswered
	for _, a := range in {
		one, bad := a.toAnswer()
		if bad != nil {
			return nil, bad
		}
		out.Answers = append(out.Answers, one)
	}
	return out, err
}

func (l Line) actionDone() (decide.Observation, error) {
	in, err := decodeBody[outcome](l)
	for _, how := range in.Results {
		if how > action.TooLarge {
			return nil, fmt.Errorf("%d is not the result of a write", how)
		}
	}
	return decide.ActionDone{
		Err: in.Error.toError(), SentAt: in.SentAt, Withheld: in.Withheld, Results: in.Results,
	}, err
}
