package judge

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	AuditID, Stage, Verb, UserAgent string
	ObjectRef                       *struct{ Resource, Subresource, Namespace, Name string }
	ResponseStatus                  *struct{ Code int }
	RequestObject                   *struct {
		Spec struct{ HolderIdentity *string }
	}
	ResponseObject *struct {
		Metadata struct {
			Name, UID, ResourceVersion string
			Annotations                map[string]string
		}
		Spec    struct{ NodeName, FenceState string }
		Status  json.RawMessage // an object, or the word of a Status
		Details struct{ UID string }
	}
	RequestReceivedTimestamp, StageTimestamp time.Time
}

// AuditLog reads what was appended to a log since the last time.
type AuditLog struct {
	File   string
	offset int64
}

// Read adds the accepted writes and the leader's own of its Lease.
func (l *AuditLog) Read(a *Account, proxied map[string]Sent) error {
	f, err := os.Open(l.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(f, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // the rest of a line comes the next time
		}
		if err != nil {
			return err
		}
		l.offset += int64(len(line))
		if err := l.line(bytes.TrimSpace(line), a, proxied); err != nil {
			return err
		}
	}
}

func (l *AuditLog) line(line []byte, a *Account, proxied map[string]Sent) error {
	var e auditEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("reading audit log: %w: %s", err, line)
	}
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil || e.ResponseStatus == nil || e.ResponseStatus.Code >= 300 {
		return nil
	}
	life := ""
	if strings.HasPrefix(e.UserAgent, "judged-") {
		life = e.UserAgent
	}
	if e.ObjectRef.Resource == "leases" {
		if life == "" || e.RequestObject == nil || e.RequestObject.Spec.HolderIdentity == nil {
			return nil
		}
		if *e.RequestObject.Spec.HolderIdentity != "" {
			a.Leads = append(a.Leads, Lead{Life: life, Done: e.StageTimestamp})
		}
		return nil
	}
	if e.ResponseObject == nil || e.Verb == "deletecollection" { // which names no object
		return nil
	}
	var status struct{ NodeName, Result, Message string }
	_ = json.Unmarshal(e.ResponseObject.Status, &status) // of other kinds it is something else
	w := Write{
		Life: life, Verb: e.Verb, Resource: e.ObjectRef.Resource, Sub: e.ObjectRef.Subresource, Key: e.ObjectRef.Name,
		UID: e.ResponseObject.Metadata.UID, RV: e.ResponseObject.Metadata.ResourceVersion,
		Node: cmp.Or(e.ResponseObject.Spec.NodeName, status.NodeName, e.ResponseObject.Metadata.Annotations[nodeKey]),
		Sent: e.RequestReceivedTimestamp, Received: e.RequestReceivedTimestamp, Done: e.StageTimestamp,
	}
	if w.Resource == networkFences {
		w.Order = Order{e.ResponseObject.Spec.FenceState, status.Result, status.Message}
	}
	if w.UID == "" {
		w.UID = e.ResponseObject.Details.UID
	}
	if w.Key == "" {
		w.Key = e.ResponseObject.Metadata.Name
	}
	if e.ObjectRef.Namespace != "" {
		w.Key = e.ObjectRef.Namespace + "/" + w.Key
	}
	if p, ok := proxied[e.AuditID]; ok {
		w.Sent, w.Life = p.At, p.Life
	}
	a.Writes = append(a.Writes, w)
	return nil
}
