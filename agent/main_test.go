package main

import (
	"testing"

	"github.com/muster-fleet/muster/testing/flaghelp"
)

func TestFlagHelpHasNoBackQuotes(t *testing.T) { flaghelp.Check(t, newCommand()) }
