// Command crasher replaces muster-agent in a package: a broken release that dies as soon as
// it starts.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "muster-agent: cannot load the module table: this build is broken")
	os.Exit(3)
}
