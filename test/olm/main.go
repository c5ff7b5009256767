// Command olm runs the parts of the Operator Lifecycle Manager that the tests of deploy/olm need. It uses OLM's own
// libraries, in one process and on loopback:
//
//	olm validate DIR    prints what the checks of operator-framework/api and operator-registry find in a bundle
//	olm crds            prints OLM's own CustomResourceDefinitions
//	olm run --kubeconfig FILE --listen ADDRESS DIR...
//	                    serves a catalogue of these bundles and runs OLM's two controllers, until a signal ends it
//
// It is a module of its own, because OLM is a large one. OLM's own programs listen on every address of the machine;
// this one does not.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	configclientset "github.com/openshift/client-go/config/clientset/versioned"
	"github.com/operator-framework/api/crds"
	apimanifests "github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/api/client/clientset/versioned"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/catalog"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/olm"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/controller/operators/validatingroundtripper"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/operatorclient"
	"github.com/operator-framework/operator-lifecycle-manager/pkg/lib/queueinformer"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/pkg/api"
	"github.com/operator-framework/operator-registry/pkg/cache"
	"github.com/operator-framework/operator-registry/pkg/image"
	"github.com/operator-framework/operator-registry/pkg/lib/bundle"
	"github.com/operator-framework/operator-registry/pkg/registry"
	"github.com/operator-framework/operator-registry/pkg/server"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 {
		return errors.New("want validate, crds or run")
	}
	switch args[0] {
	case "validate":
		return validate(args[1:])
	case "crds":
		return definitions()
	case "run":
		return run(ctx, args[1:])
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// validate prints what is wrong with a bundle, warnings as well.
func validate(args []string) error {
	if len(args) != 1 {
		return errors.New("want a bundle's folder")
	}
	dir := args[0]
	say := func(kind string, what any) { fmt.Printf("%s: %v\n", kind, what) }
	log := logrus.New()
	log.SetOutput(os.Stderr)
	checked := bundle.NewImageValidator(nil, logrus.NewEntry(log))
	if err := checked.ValidateBundleFormat(dir); err != nil {
		say("format", err)
	}
	if err := checked.ValidateBundleContent(filepath.Join(dir, bundle.ManifestsDir)); err != nil {
		say("content", err)
	}
	b, err := apimanifests.GetBundleFromDir(dir)
	if err != nil {
		return fmt.Errorf("reading %s: %w", dir, err)
	}
	objects := b.ObjectsToValidate()
	for _, o := range b.Objects {
		objects = append(objects, o)
	}
	docker := reflect.ValueOf(validation.MultipleArchitecturesValidator).Pointer() // it has docker pull the image
	checks := slices.DeleteFunc(slices.Clone(validation.AllValidators),
		func(v validator.Validator) bool { return reflect.ValueOf(v).Pointer() == docker })
	for _, r := range validator.Validators(checks).Validate(objects...) {
		for _, e := range r.Errors {
			say("error", e)
		}
		for _, e := range r.Warnings {
			say("warning", e)
		}
	}
	return nil
}

func definitions() error {
	out := json.NewEncoder(os.Stdout) // one JSON object a line is what kubectl reads, too
	for _, get := range []func() *apiextensionsv1.CustomResourceDefinition{
		crds.CatalogSource, crds.ClusterServiceVersion, crds.InstallPlan, crds.OLMConfig, crds.Operator,
		crds.OperatorCondition, crds.OperatorGroup, crds.Subscription,
	} {
		d := get()
		d.APIVersion, d.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
		d.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
		if err := out.Encode(d); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "of a cluster-admin")
	listen := flags.String("listen", "", "the catalogue's address")
	namespace := flags.String("namespace", "olm", "where catalogues for all namespaces are")
	if err := flags.Parse(args); err != nil {
		return err
	}
	stop, err := serve(ctx, *listen, flags.Args())
	if err != nil {
		return fmt.Errorf("serving the catalogue: %w", err)
	}
	defer stop()
	return operate(ctx, *kubeconfig, *namespace)
}

// serve is a registry of the bundles in dirs: one channel, in the order that their `replaces` say. Their objects are in
// the catalogue, so that no image has to be pulled.
func serve(ctx context.Context, listen string, dirs []string) (stop func(), err error) {
	channel := declcfg.Channel{Schema: declcfg.SchemaChannel, Name: "stable"}
	var catalogue declcfg.DeclarativeConfig
	for _, dir := range dirs {
		in, err := registry.NewImageInput(image.SimpleReference(""), dir)
		if err != nil {
			return nil, err
		}
		_, properties, err := registry.ObjectsAndPropertiesFromBundle(in.Bundle)
		if err != nil {
			return nil, err
		}
		replaces, err := in.Bundle.Replaces()
		if err != nil {
			return nil, err
		}
		channel.Package = in.Bundle.Package
		channel.Entries = append(channel.Entries, declcfg.ChannelEntry{Name: in.Bundle.Name, Replaces: replaces})
		catalogue.Bundles = append(catalogue.Bundles,
			declcfg.Bundle{Schema: declcfg.SchemaBundle, Name: in.Bundle.Name, Package: in.Bundle.Package,
				Properties: properties})
	}
	catalogue.Channels = []declcfg.Channel{channel}
	catalogue.Packages = []declcfg.Package{
		{Schema: declcfg.SchemaPackage, Name: channel.Package, DefaultChannel: channel.Name}}
	tmp, err := os.MkdirTemp("", "catalogue-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(tmp) // the first error is the one to tell
		}
	}()
	var text strings.Builder
	if err := declcfg.WriteJSON(catalogue, &text); err != nil {
		return nil, err
	}
	source := filepath.Join(tmp, "source")
	if err := errors.Join(os.Mkdir(source, 0o755),
		os.WriteFile(filepath.Join(source, "catalogue.json"), []byte(text.String()), 0o600)); err != nil {
		return nil, err
	}
	store, err := cache.New(filepath.Join(tmp, "cache"), cache.WithLog(logrus.NewEntry(logrus.StandardLogger())))
	if err != nil {
		return nil, err
	}
	if err := cache.LoadOrRebuild(ctx, store, os.DirFS(source)); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	s := grpc.NewServer()
	api.RegisterRegistryServer(s, server.NewRegistryServer(store))
	grpc_health_v1.RegisterHealthServer(s, server.NewHealthServer())
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return func() {
		s.Stop()
		<-done
		_ = errors.Join(store.Close(), os.RemoveAll(tmp)) // a temporary folder
	}, nil
}

// operate runs OLM's catalogue operator and its operator, as their own programs do.
func operate(ctx context.Context, kubeconfig, namespace string) error {
	log := logrus.New()
	for _, add := range []error{
		apiextensionsv1.AddToScheme(scheme.Scheme), apiregistrationv1.AddToScheme(scheme.Scheme)} {
		if add != nil {
			return add
		}
	}
	const none = "nothing.invalid/image" // of pods that unpack bundles and serve catalogues; here are none
	catalogues, err := catalog.NewOperator(ctx, kubeconfig, clock.RealClock{}, log, 15*time.Minute, none, none, none,
		namespace, scheme.Scheme, time.Minute, time.Minute, -1)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	labelled := validatingroundtripper.Wrap(config, scheme.Scheme)
	client, err := operatorclient.NewClientFromRestConfig(labelled)
	if err != nil {
		return err
	}
	olmClient, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	openshift, err := configclientset.NewForConfig(config)
	if err != nil {
		return err
	}
	operators, err := olm.NewOperator(ctx, olm.WithLogger(log), olm.WithWatchedNamespaces(""),
		olm.WithResyncPeriod(queueinformer.ResyncWithJitter(5*time.Minute, 0.2)),
		olm.WithExternalClient(olmClient), olm.WithMetadataClient(meta), olm.WithOperatorClient(client),
		olm.WithRestConfig(labelled), olm.WithConfigClient(openshift))
	if err != nil {
		return err
	}
	catalogues.Run(ctx)
	operators.Run(ctx)
	<-catalogues.Ready()
	<-operators.Ready()
	fmt.Println("ready")
	<-catalogues.Done()
	<-operators.Done()
	return nil
}
