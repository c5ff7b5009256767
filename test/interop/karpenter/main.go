// Command karpenter runs Karpenter's controllers with the KWOK cloud, whose machines are Nodes without a kubelet. It
// wires the project's own packages as the project's program does, but opens no port: that program's metrics and probes
// listen on every address of the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/zapr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeoverlay"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/logging"
	"sigs.k8s.io/karpenter/pkg/operator/options"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	os.Args = os.Args[:1]
	if err := run(injection.WithOptionsOrDie(ctrl.SetupSignalHandler(), options.Injectables...)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run has the flags' defaults of the project's program, which come from variables of the environment.
func run(ctx context.Context) error {
	log := zapr.NewLogger(logging.NewLogger(ctx, "controller"))
	ctrl.SetLogger(log)
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = float32(options.FromContext(ctx).KubeClientQPS), options.FromContext(ctx).KubeClientBurst
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Logger: log, Metrics: server.Options{BindAddress: "0"}, BaseContext: func() context.Context { return ctx },
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&coordinationv1.Lease{}: {
			Field: fields.SelectorFromSet(fields.Set{"metadata.namespace": corev1.NamespaceNodeLease})}}},
	})
	if err != nil {
		return err
	}
	if err := index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		return err
	}
	now, overlays := clock.RealClock{}, nodeoverlay.NewInstanceTypeStore()
	plain := kwok.NewCloudProvider(ctx, mgr.GetClient(), types)
	cloud := overlay.Decorate(plain, mgr.GetClient(), overlays)
	for _, c := range controllers.NewControllers(ctx, mgr, now, mgr.GetClient(),
		events.NewRecorder(mgr.GetEventRecorderFor("karpenter")), cloud, plain,
		state.NewCluster(now, mgr.GetClient(), cloud), overlays) {
		if err := c.Register(ctx, mgr); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// index makes the indexes that the controllers read.
func index(ctx context.Context, by client.FieldIndexer) error {
	for _, x := range []struct {
		of    client.Object
		field string
		value func(client.Object) string
	}{
		{&corev1.Pod{}, "spec.nodeName", func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&corev1.Node{}, "spec.providerID", func(o client.Object) string { return o.(*corev1.Node).Spec.ProviderID }},
		{&storagev1.VolumeAttachment{}, "spec.nodeName",
			func(o client.Object) string { return o.(*storagev1.VolumeAttachment).Spec.NodeName }},
		{&v1.NodeClaim{}, "status.providerID",
			func(o client.Object) string { return o.(*v1.NodeClaim).Status.ProviderID }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.group",
			func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Group }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.kind",
			func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Kind }},
		{&v1.NodeClaim{}, "spec.nodeClassRef.name",
			func(o client.Object) string { return o.(*v1.NodeClaim).Spec.NodeClassRef.Name }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.group",
			func(o client.Object) string { return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Group }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.kind",
			func(o client.Object) string { return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Kind }},
		{&v1.NodePool{}, "spec.template.spec.nodeClassRef.name",
			func(o client.Object) string { return o.(*v1.NodePool).Spec.Template.Spec.NodeClassRef.Name }},
	} {
		if err := by.IndexField(ctx, x.of, x.field, func(o client.Object) []string {
			return []string{x.value(o)}
		}); err != nil {
			return fmt.Errorf("indexing %T by %s: %w", x.of, x.field, err)
		}
	}
	return nil
}
