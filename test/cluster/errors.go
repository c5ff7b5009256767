package cluster

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestTimeout ends requests to an API server that is paused.
const requestTimeout = 10 * time.Second

// final reports whether asking again cannot help.
func final(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) ||
		apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
