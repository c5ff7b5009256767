package reason

import _ "fmt"
