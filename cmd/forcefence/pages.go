package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is how many objects one list request returns at most.
const pageSize = 500

// eachObject lists objects in pages and calls f for each. list returns an empty list of their type.
func eachObject[L client.ObjectList](
	ctx context.Context,
	c client.Reader,
	list func() L,
	f func(runtime.Object) error,
	opts ...client.ListOption,
) error {
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		l := list()
		return l, c.List(ctx, l, append(opts, client.Limit(o.Limit), client.Continue(o.Continue))...)
	})
	p.PageSize = pageSize
	return p.EachListItem(ctx, metav1.ListOptions{}, f)
}
