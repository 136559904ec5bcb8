// Command crasher stands in a package where muster-agent should: a release that
// was built wrong and dies as soon as it starts.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "muster-agent: cannot load the module table: this build is broken")
	os.Exit(3)
}
