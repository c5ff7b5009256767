package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/kube"
)

// ConfigCheck looks once at each configuration for policies, and modes, that select no node or no pod of the cluster: a misspelt label ends nothing, and
// nobody would know before a node is dead. It says so in the log and changes nothing; pods may come later.
type ConfigCheck struct {
	Reconciler *Reconciler

	looked *Config // at this one
}

// policiesEvery is how often a new configuration is looked for. It costs a request only if there is one, or the last look failed.
const policiesEvery = 10 * time.Second

// Start blocks until ctx ends. It runs on the leader.
func (c *ConfigCheck) Start(ctx context.Context) error {
	for {
		c.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(policiesEvery):
		}
	}
}

// look looks at the configuration in force, unless it did.
func (c *ConfigCheck) look(ctx context.Context) {
	config := c.Reconciler.Config()
	if config == c.looked {
		return
	}
	switch err := errors.Join(c.check(ctx, config.Policies), c.checkSelectors(ctx, config), c.checkExcluded(ctx, config)); {
	case err == nil:
		c.looked = config
	case ctx.Err() == nil:
		c.Reconciler.Log.Warn("Cannot look for what policies and modes select", "error", err)
	}
}

func (c *ConfigCheck) check(ctx context.Context, policies []policy.Policy) error {
	r := c.Reconciler
	for _, one := range policies {
		nodes := &corev1.NodeList{}
		if err := r.Cache.List(ctx, nodes, client.MatchingLabelsSelector{Selector: orAll(one.Nodes)}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		if len(nodes.Items) == 0 {
			r.Log.Warn("Policy selects no node of the cluster: is its selector right?", "policy", one.Name, "nodes", one.Nodes)
		}
		switch found, err := c.selects(ctx, one); {
		case err != nil:
			return err
		case !found:
			r.Log.Warn("Policy selects no pod of the cluster: are its namespaces and labels right?", "policy", one.Name,
				"namespaces", one.Namespaces, "pods", orAll(one.Pods).String())
		}
	}
	return nil
}

// selects reports whether any pod is in the policy's namespaces and has its labels.
func (c *ConfigCheck) selects(ctx context.Context, one policy.Policy) (bool, error) {
	namespaces := one.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{corev1.NamespaceAll}
	}
	for _, ns := range namespaces {
		ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
		pods := &corev1.PodList{}
		err := c.Reconciler.Live.List(ctx, pods, client.InNamespace(ns), client.MatchingLabelsSelector{Selector: orAll(one.Pods)}, client.Limit(1))
		cancel()
		switch {
		case err != nil:
			return false, fmt.Errorf("listing pods of policy %s: %w", one.Name, err)
		case len(pods.Items) > 0:
			return true, nil
		}
	}
	return false, nil
}

func orAll(s labels.Selector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	return s
}

// checkSelectors tells which of the file's selectors of nodes select none: a misspelt label would leave nodes in another mode than was
// meant, and nobody would know before one of them is dead.
func (c *ConfigCheck) checkSelectors(ctx context.Context, config *Config) error {
	for _, where := range slices.Sorted(maps.Keys(config.Selectors)) {
		nodes := &corev1.NodeList{}
		selector := config.Selectors[where]
		if err := c.Reconciler.Cache.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing nodes: %w", err)
		}
		if len(nodes.Items) == 0 {
			c.Reconciler.Log.Warn("A selector of the configuration selects no node of the cluster: is it right?", "key", where, "selector", selector.String())
		}
	}
	return nil
}

// checkExcluded tells once, when a configuration is new, that everything is paused, or that nobody can read whether it is.
func (c *ConfigCheck) checkExcluded(ctx context.Context, config *Config) error {
	w, err := c.Reconciler.saidElsewhere(ctx, config.Elsewhere, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "forcefence"}})
	if w.Excluded != "" {
		c.Reconciler.Log.Warn("No node is fenced", "why", w.Excluded)
	}
	return err
}
