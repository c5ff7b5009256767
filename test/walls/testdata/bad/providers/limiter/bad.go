package limiter

import _ "github.com/forcefence/forcefence/providers/remote"
