package api

import _ "k8s.io/api/core/v1"
