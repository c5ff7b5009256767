package wake

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	_ "github.com/forcefence/forcefence/taint/features/release"
	"github.com/forcefence/forcefence/taint/kube"
)

var (
	_ kube.Writer
	_ client.Client
	_ client.Reader // it may read
	_ = func(m manager.Manager, o client.Object) error { return m.GetClient().Update(context.Background(), o) }
	_ = time.Now    // it has a clock
	_ = fmt.Println // forbidden to views alone
)
