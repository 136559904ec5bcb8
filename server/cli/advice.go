package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// possible returns a command of an object if the server says that it is possible now, with an empty
// name otherwise.
func possible(commands []adminapi.Command, name string) adminapi.Command {
	i := slices.IndexFunc(commands, func(c adminapi.Command) bool { return c.Name == name && c.Allowed })
	if i < 0 {
		return adminapi.Command{}
	}
	return commands[i]
}

// advise returns a sentence with a command to give, by a format with its arguments. It is empty
// if the server says that the command is not possible now.
func advise(commands []adminapi.Command, name, format, args string) string {
	c := possible(commands, name)
	switch {
	case c.Name == "":
		return ""
	case c.NeedsReason:
		args += " --why …"
	}
	return fmt.Sprintf(format, args)
}

// sentences joins those that are not empty.
func sentences(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), " ")
}
