package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/view"
)

// completionTimeout bounds how long a shell waits for words from the API server.
const completionTimeout = 3 * time.Second

// completeFlag sets the completion of a flag that exists.
func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // no such flag
	}
}

// completeFiles lets the shell complete names of files.
func completeFiles(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// completeNodes returns a completion of at most most names of nodes; 0: any number.
func (r *clusterFlags) completeNodes(most int) cobra.CompletionFunc {
	nodes := r.completeObjects(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		words, directive := nodes(cmd, args, begun)
		return slices.DeleteFunc(words, func(w string) bool { return slices.Contains(args, w) }), directive
	}
}

// completeObjects returns a completion of the names of all objects in a list of that kind.
func (r *clusterFlags) completeObjects(kind schema.GroupVersionKind) cobra.CompletionFunc {
	return r.completeWords(func(ctx context.Context, c client.Client, add func(word string)) error {
		return eachObject(ctx, c, func() *metav1.PartialObjectMetadataList {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind)
			return list
		}, func(o runtime.Object) error {
			add(o.(*metav1.PartialObjectMetadata).Name)
			return nil
		})
	})
}

// completeFences completes the id of a fence, or the name of a node that had one.
func (r *clusterFlags) completeFences(
	cmd *cobra.Command,
	args []string,
	begun string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return r.completeWords(func(ctx context.Context, c client.Client, add func(word string)) error {
		return eachObject(ctx, c, newFencings, func(o runtime.Object) error {
			if f, err := view.ParseFencing(o.(*unstructured.Unstructured).Object); err == nil {
				add(f.Fencing.Spec.Node)
				add(f.Fencing.Spec.ID)
			}
			return nil
		})
	})(cmd, args, begun)
}

// completeWords returns a completion with words from the API server; none if it cannot be read in time.
func (r *clusterFlags) completeWords(
	read func(ctx context.Context, c client.Client, add func(word string)) error,
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		words := map[string]bool{}
		c, err := r.newClient()
		if err == nil {
			err = read(ctx, c, func(word string) {
				if strings.HasPrefix(word, begun) {
					words[word] = true
				}
			})
		}
		if err != nil {
			cobra.CompErrorln(describeUnread(err, cmd.Annotations[roleAnnotation]))
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(words)), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeConfig returns a completion of names in the kubeconfig.
func (r *clusterFlags) completeConfig(names func(clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cfg, err := r.clientConfig().RawConfig()
		if err != nil {
			cobra.CompErrorln(err.Error())
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		fits := slices.DeleteFunc(names(cfg), func(n string) bool { return !strings.HasPrefix(n, begun) })
		return fits, cobra.ShellCompDirectiveNoFileComp
	}
}

// addCompletions adds the completions of the flags that addFlags adds.
func (r *clusterFlags) addCompletions(cmd *cobra.Command) {
	completeFlag(cmd, "kubeconfig", completeFiles)
	completeFlag(cmd, clientcmd.FlagContext, r.completeConfig(func(c clientcmdapi.Config) []string {
		return slices.Sorted(maps.Keys(c.Contexts))
	}))
	completeFlag(cmd, clientcmd.FlagClusterName, r.completeConfig(func(c clientcmdapi.Config) []string {
		return slices.Sorted(maps.Keys(c.Clusters))
	}))
	completeFlag(cmd, clientcmd.FlagAuthInfoName, r.completeConfig(func(c clientcmdapi.Config) []string {
		return slices.Sorted(maps.Keys(c.AuthInfos))
	}))
}
