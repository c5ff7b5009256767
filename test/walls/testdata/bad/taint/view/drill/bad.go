package drill

import _ "github.com/forcefence/forcefence/taint/view"
