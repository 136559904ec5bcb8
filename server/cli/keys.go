package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newKeys() *cobra.Command {
	show := &cobra.Command{
		Use:   "show KEY",
		Short: "Show the token of an enrollment key, and the commands that install and enrol a host with it",
		Args:  oneArg("one key id"),
	}
	create := &cobra.Command{
		Use:   "create",
		Short: "Create an enrollment key and show its token, and the commands that install and enrol a host with it",
	}
	name := create.Flags().String("name", "", "name of the key")
	policy := create.Flags().String("policy", "default", "policy that hosts enrol into")
	expiration := create.Flags().String("expires", "", "how long the key enrols hosts, such as 24h or 30d (default: no limit)")
	create = a.showingKey(create, func(cmd *cobra.Command, _ []string) (shownKey, error) {
		req := adminapi.CreateEnrollmentKeyRequest{Name: name, PolicyId: *policy, Expiration: expirationOf(*expiration)}
		got, err := call(cmd.Context(), a, adminapi.Operation[adminapi.CreateEnrollmentKeyRequest, shownKey]{Call: adminapi.CreateEnrollmentKey.Call}, req)
		if isRefusal(err, http.StatusNotFound) {
			err = fmt.Errorf("%w: see `muster policies list`", err)
		}
		return got, err
	})
	return noun(&cobra.Command{Use: "keys", Short: "List, show, create and revoke enrollment keys"},
		running(a, &cobra.Command{Use: "list", Short: "List enrollment keys"}, func(cmd *cobra.Command, _ []string) (adminapi.EnrollmentKeyList, error) {
			got, err := ask(cmd.Context(), a, adminapi.ListEnrollmentKeys, url.Values{"perPage": {"10000"}})
			// A list is kept and passed on more readily than one token; see keepSecret.
			got.List = nil
			for i := range got.Items {
				got.Items[i].ApiKey = nil
			}
			return got, err
		}, func(w io.Writer, got adminapi.EnrollmentKeyList) {
			tableOf(w, "ID\tNAME\tPOLICY\tACTIVE\tCREATED\tEXPIRES", got.Items, func(k adminapi.EnrollmentKey) []any {
				return []any{k.Id, k.Name, k.PolicyId, k.Active, atTime(k.CreatedAt), expires(k.ExpireAt)}
			})
		}),
		a.showingKey(show, func(cmd *cobra.Command, args []string) (shownKey, error) {
			return ask(cmd.Context(), a, adminapi.Operation[adminapi.None, shownKey]{Call: adminapi.GetEnrollmentKey.Call}, nil, args[0])
		}),
		create,
		showing(a, &cobra.Command{
			Use:   "revoke KEY",
			Short: "Revoke an enrollment key; agents enrolled with it stay enrolled",
			Args:  oneArg("one key id"),
		}, adminapi.RevokeEnrollmentKey, saying[adminapi.ActionWord]("revoked")))
}

// shownKey is the output about one key.
type shownKey struct {
	Action string                 `json:"action,omitempty"` // created
	Item   adminapi.EnrollmentKey `json:"item"`
	File   string                 `json:"api_key_file,omitempty"`
	// Commands enrol a host with the key; those without a package are left out.
	Commands []adminapi.EnrollmentCommand `json:"commands,omitempty"`
	problems []string                     // why platforms have no command
	unpacked string                       // the command in the folder of an unpacked package
}

// showingKey makes cmd show the token of the key that get returns, and the commands that install and
// enrol a host.
func (a *client) showingKey(cmd *cobra.Command, get func(cmd *cobra.Command, args []string) (shownKey, error)) *cobra.Command {
	platform := cmd.Flags().String("platform", "", "show only the command for this platform, such as linux-arm64 (default: all that a package is published for)")
	return running(a, cmd, func(cmd *cobra.Command, args []string) (out shownKey, err error) {
		var commands adminapi.EnrollmentCommands
		file, err := keepSecret(cmd.OutOrStdout(), "enrollment-token", func() (string, **string, error) {
			// Before a key is created, so that a platform without a package leaves none behind.
			var problems []string
			if commands, problems, err = a.enrollmentCommands(cmd, *platform); err != nil {
				return "", nil, err
			}
			out, err = get(cmd, args)
			if err == nil && out.Item.ApiKey == nil {
				err = fmt.Errorf("key %s: the server does not show its token again: it keeps only a hash of it, or lacks the key that decrypts it (then /api/status is degraded): create another key", out.Item.Id)
			}
			out.problems = problems
			return "key " + out.Item.Id, &out.Item.ApiKey, err
		})
		if err != nil {
			return out, err
		}
		out.File = file
		token := strings.NewReplacer(commands.TokenWord, tokenArgument(out.Item.ApiKey, out.File))
		for _, c := range commands.Items {
			c.Command = new(token.Replace(*c.Command))
			out.Commands = append(out.Commands, c)
		}
		out.unpacked = token.Replace(enrollment.WithToken("./data/*/" + commands.Install))
		return out, nil
	}, func(w io.Writer, out shownKey) { out.print(w) })
}

func (k shownKey) print(w io.Writer) {
	fmt.Fprintf(w, "%s\n", shownSecret(k.Item.ApiKey, k.File))
	for _, c := range k.Commands {
		shell := "as root"
		if strings.HasPrefix(c.Platform, "windows-") {
			shell = "in PowerShell as administrator"
		}
		fmt.Fprintf(w, "\nInstall %s on a host and enrol it, %s:\n  %s\n", *c.File, shell, *c.Command)
	}
	for _, problem := range k.problems {
		fmt.Fprintf(w, "\n%s\n", problem)
	}
	fmt.Fprintf(w, "\nInstall and enrol a host, as root, in the folder of an unpacked package:\n  %s\n", k.unpacked)
}

// enrollmentCommands returns the commands for one platform, or with an empty one for all that
// have a package, and why others have none.
func (a *client) enrollmentCommands(cmd *cobra.Command, platform string) (commands adminapi.EnrollmentCommands, problems []string, err error) {
	commands, err = ask(cmd.Context(), a, adminapi.GetEnrollmentCommands, nil)
	if err != nil {
		return commands, nil, err
	}
	var known []string
	var missing []string
	items := commands.Items
	commands.Items = nil
	for _, c := range items {
		known = append(known, c.Platform)
		switch {
		case platform != "" && c.Platform != platform:
		case c.Command != nil && c.File != nil:
			commands.Items = append(commands.Items, c)
		case platform != "" && c.Problem != nil:
			return commands, nil, fmt.Errorf("--platform %s: %s", platform, *c.Problem)
		case c.File == nil:
			missing = append(missing, c.Platform)
		case c.Problem != nil:
			problems = append(problems, c.Platform+": "+*c.Problem)
		}
	}
	if platform != "" && !slices.Contains(known, platform) {
		return commands, nil, fmt.Errorf("--platform is %q, want one of %s", platform, strings.Join(known, ", "))
	}
	if len(missing) > 0 {
		problems = append(problems, "No agent is published for "+strings.Join(missing, ", ")+": publish one with `muster package push`, and hosts can download it with one command.")
	}
	return commands, problems, nil
}

// expirationOf returns the expiration of a key as the API has it, which takes one unit. It
// passes what is no duration on to the server, which says what is wrong with it.
func expirationOf(text string) *string {
	if d, err := time.ParseDuration(text); err == nil && d > 0 && d%time.Second == 0 {
		text = fmt.Sprintf("%ds", int64(d/time.Second))
	}
	if text == "" {
		return nil
	}
	return &text
}

// tokenArgument returns an enrollment token for a command, or what the shell reads it with there.
func tokenArgument(token *string, file string) string {
	if token != nil {
		return *token
	}
	return "$(cat " + file + ")"
}
