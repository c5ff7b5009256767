package kit

import _ "github.com/forcefence/forcefence/taint"
