package cluster

import (
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// requestTimeout ends requests to an API server that is paused.
const requestTimeout = 10 * time.Second

func gone(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

func statusError(obj runtime.Object) error {
	return fmt.Errorf("watch: %w", apierrors.FromObject(obj))
}

// final reports whether asking again cannot help.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || gone(err)
}
