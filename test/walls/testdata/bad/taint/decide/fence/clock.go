package fence

import (
	"context"
	. "time"
	tt "time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/forcefence/forcefence/providers"
)

var (
	_ = Now
	_ = tt.Since(tt.Time{}).Round(5 * Second) // a duration is data
	_ = tt.Time{}.After                       // and so is a moment
	_ = metav1.Now
	_ = providers.Now
	_ = context.WithTimeoutCause
)
