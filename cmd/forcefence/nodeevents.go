package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/view"
)

// eventsOf returns forcefence's Events about Nodes by node name, in the API server's order. node limits them to one
// node; "" means all.
func eventsOf(ctx context.Context, c client.Reader, node string) (map[string][]view.Event, error) {
	about := fields.Set{"involvedObject.kind": "Node", "reportingComponent": "forcefence"}
	if node != "" {
		about["involvedObject.name"] = node
	}
	out := map[string][]view.Event{}
	err := eachObject(ctx, c, func() *corev1.EventList { return &corev1.EventList{} }, func(o runtime.Object) error {
		e := o.(*corev1.Event)
		name := e.InvolvedObject.Name
		out[name] = append(out[name], view.Event{
			At: timeOfEvent(e), Reason: e.Reason, Text: e.Message, From: e.ReportingController,
		})
		return nil
	}, client.InNamespace(metav1.NamespaceDefault), client.MatchingFieldsSelector{Selector: about.AsSelector()})
	if err != nil {
		return nil, fmt.Errorf("listing Events: %w", err)
	}
	return out, nil
}

// timeOfEvent returns when an Event was reported last.
func timeOfEvent(e *corev1.Event) time.Time {
	at := e.EventTime.Time
	if e.Series != nil {
		at = e.Series.LastObservedTime.Time
	}
	if at.IsZero() {
		at = e.LastTimestamp.Time
	}
	return at.UTC()
}
