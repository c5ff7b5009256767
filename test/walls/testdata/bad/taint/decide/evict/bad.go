package evict

import (
	_ "log/slog"

	_ "k8s.io/klog/v2"
)
