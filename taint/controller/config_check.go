package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/forcefence/forcefence/taint/decide/policy"
	"github.com/forcefence/forcefence/taint/kube"
)

// ConfigCheck compares each new configuration with the cluster, once. It warns in the log of policies and modes that
// select no node or no pod, and of a pause of the whole cluster. A policy with a misspelt label ends nothing, and the
// mistake would show only when a node is dead. It changes nothing: pods may come later. Every field is required.
type ConfigCheck struct {
	Live, Cache client.Reader // the API server, for pods; the informers, for nodes
	Log         *slog.Logger
	Config      func() *Config
	// LeftAlone returns why nothing may be begun in the cluster, which has the name "": Reconciler.LeftAlone.
	LeftAlone func(ctx context.Context, node string) (string, error)

	checked *Config // the configuration whose check succeeded last
}

// checkEvery is how often to check for a new configuration. It costs a request only if there is one, or the last check
// failed.
const checkEvery = 10 * time.Second

// Start blocks until ctx ends. It runs on the leader.
func (c *ConfigCheck) Start(ctx context.Context) error {
	for {
		c.checkConfig(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(checkEvery):
		}
	}
}

// checkConfig checks the configuration in force, unless that was checked already.
func (c *ConfigCheck) checkConfig(ctx context.Context) {
	config := c.Config()
	if config == c.checked {
		return
	}
	err := errors.Join(c.checkPolicies(ctx, config.Policies), c.checkSelectors(ctx, config.Selectors),
		c.checkPause(ctx))
	switch {
	case err == nil:
		c.checked = config
	case ctx.Err() == nil:
		c.Log.Warn("Cannot check what policies and modes select", "error", err)
	}
}

// checkPolicies warns of policies that select no node, or no pod.
func (c *ConfigCheck) checkPolicies(ctx context.Context, policies []policy.Policy) error {
	for _, one := range policies {
		switch found, err := c.selectsNode(ctx, orAll(one.Nodes)); {
		case err != nil:
			return err
		case !found:
			c.Log.Warn("Policy selects no node of the cluster: is its selector right?", "policy", one.Name, "nodes",
				one.Nodes)
		}
		switch found, err := c.selectsPod(ctx, one); {
		case err != nil:
			return err
		case !found:
			c.Log.Warn("Policy selects no pod of the cluster: are its namespaces and labels right?", "policy", one.Name,
				"namespaces", one.Namespaces, "pods", orAll(one.Pods).String())
		}
	}
	return nil
}

// checkSelectors warns of selectors of nodes that select none: their nodes are in another mode than intended. Each is
// reported under its key in the file.
func (c *ConfigCheck) checkSelectors(ctx context.Context, selectors map[string]labels.Selector) error {
	for _, key := range slices.Sorted(maps.Keys(selectors)) {
		switch found, err := c.selectsNode(ctx, selectors[key]); {
		case err != nil:
			return err
		case !found:
			c.Log.Warn("A selector of the configuration selects no node of the cluster: is it right?",
				"key", key, "selector", selectors[key].String())
		}
	}
	return nil
}

// checkPause warns that everything is paused, or that the pause cannot be read.
func (c *ConfigCheck) checkPause(ctx context.Context) error {
	why, err := c.LeftAlone(ctx, "")
	if why != "" {
		c.Log.Warn("No node is fenced", "why", why)
	}
	return err
}

// selectsNode reports whether the selector selects any node.
func (c *ConfigCheck) selectsNode(ctx context.Context, selector labels.Selector) (bool, error) {
	nodes := &corev1.NodeList{}
	err := c.Cache.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("listing nodes: %w", err)
	}
	return len(nodes.Items) > 0, nil
}

// selectsPod reports whether any pod is in the policy's namespaces and has its labels.
func (c *ConfigCheck) selectsPod(ctx context.Context, one policy.Policy) (bool, error) {
	namespaces := one.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{corev1.NamespaceAll}
	}
	for _, ns := range namespaces {
		ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
		pods := &corev1.PodList{}
		labeled := client.MatchingLabelsSelector{Selector: orAll(one.Pods)}
		err := c.Live.List(ctx, pods, client.InNamespace(ns), labeled, client.Limit(1))
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

// orAll returns the selector, or one that selects everything if there is none.
func orAll(s labels.Selector) labels.Selector {
	if s == nil {
		return labels.Everything()
	}
	return s
}
