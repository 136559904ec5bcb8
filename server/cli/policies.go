package cli

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (a *client) newPolicies() *cobra.Command {
	create := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a policy",
		Args:  oneArg("the policy's name"),
	}
	id := create.Flags().String("id", "", "id of the policy (default: generated)")
	remove := &cobra.Command{
		Use:   "delete ID",
		Short: "Delete a policy that has no agents, and revoke its enrollment keys",
		Args:  oneArg("the policy's id"),
	}
	force := remove.Flags().Bool("force", false, "delete even a managed policy")
	return noun(&cobra.Command{Use: "policies", Short: "List, show, create, copy, change and delete policies"},
		showingFor(a, &cobra.Command{Use: "list", Short: "List policies"}, adminapi.ListPolicies, query{"perPage": "10000", "sortField": "name", "sortOrder": "asc"}, func(w io.Writer, got adminapi.PolicyList) {
			tableOf(w, "ID\tNAME\tAGENTS\tREVISION", got.Items, func(p adminapi.Policy) []any { return []any{p.Id, p.Name, p.Agents, p.Revision} })
		}),
		showing(a, &cobra.Command{
			Use:   "show ID",
			Short: "Show a policy; -o json shows all of its settings",
			Args:  oneArg("the policy's id"),
		}, adminapi.GetPolicy, func(w io.Writer, got adminapi.PolicyItem) { printPolicy(w, got.Item) }),
		sending(a, create, adminapi.CreatePolicy, func(_ *cobra.Command, args []string) (adminapi.PolicyRequest, error) {
			return adminapi.PolicyRequest{Namespace: "default", Name: args[0], Id: given(*id)}, nil
		}, printPolicyID),
		sending(a, &cobra.Command{
			Use:   "copy ID NAME",
			Short: "Create a policy with the settings of another, without its required versions",
			Args:  twoArgs("the policy's id and the name of the new one"),
		}, adminapi.CopyPolicy, func(_ *cobra.Command, args []string) (adminapi.CopyPolicyRequest, error) {
			return adminapi.CopyPolicyRequest{Name: args[1]}, nil
		}, printPolicyID),
		a.newPoliciesUpdate(),
		sending(a, remove, adminapi.DeletePolicy, func(_ *cobra.Command, args []string) (adminapi.DeletePolicyRequest, error) {
			return adminapi.DeletePolicyRequest{AgentPolicyId: args[0], Force: force}, nil
		}, func(w io.Writer, got adminapi.DeletedPolicy) { fmt.Fprintf(w, "deleted %s (%s)\n", got.Id, got.Name) }))
}

func printPolicyID(w io.Writer, got adminapi.PolicyItem) { fmt.Fprintln(w, got.Item.Id) }

func printPolicy(w io.Writer, p adminapi.Policy) {
	fmt.Fprintf(w, "%s  %s\n", p.Name, p.Id)
	about := details{w, 12}
	about.option("description", deref(p.Description))
	about.row("namespace", p.Namespace)
	about.row("agents", fmt.Sprint(p.Agents))
	about.rowf("revision", "%d, by %s at %s", p.Revision, p.UpdatedBy, atTime(p.UpdatedAt))
	about.row("inactive", inactiveAfter(deref(p.InactivityTimeout)))
	for _, v := range deref(p.RequiredVersions) {
		about.rowf("requires", "%s of %v %% of the agents", v.Version, v.Percentage)
	}
	if list := deref(p.UpgradeWindows); len(list) > 0 {
		about.row("upgrades", inWindows(list))
	}
	for _, c := range deref(p.Components) {
		about.row("runs", componentOf(c))
	}
	if p.IsProtected {
		about.row("protected", "from uninstalling")
	}
	if p.IsManaged {
		about.row("managed", "changed only with force")
	}
}

// windowOf formats a window as the flag --upgrade-window takes it.
func windowOf(w adminapi.Window) string {
	text := w.From + "-" + w.To
	if days := w.Days; len(days) > 0 {
		text = strings.Join(days, ",") + " " + text
	}
	return text + " " + cmp.Or(w.Zone, "UTC")
}

func inWindows(list []adminapi.Window) string {
	return cmp.Or(strings.Join(each(list, windowOf), " and "), "at any time")
}

// windowsAlways is the value of --upgrade-window that removes the windows.
const windowsAlways = "always"

// parseWindows reads the values of --upgrade-window. The server checks days, times and zones.
func parseWindows(texts []string) ([]adminapi.Window, error) {
	list := []adminapi.Window{}
	if len(texts) == 1 && texts[0] == windowsAlways {
		return list, nil
	}
	for _, text := range texts {
		words := strings.Fields(text)
		var w adminapi.Window
		if len(words) > 0 && !strings.Contains(words[0], ":") {
			w.Days, words = strings.Split(words[0], ","), words[1:]
		}
		if len(words) > 1 {
			w.Zone = words[1]
		}
		if len(words) > 0 {
			w.From, w.To, _ = strings.Cut(words[0], "-")
		}
		if len(words) == 0 || len(words) > 2 || w.To == "" {
			return nil, &usageError{fmt.Errorf("--upgrade-window is %q, want days, times and a zone such as \"mon,tue 22:00-04:00 Europe/Berlin\", or %s", text, windowsAlways)}
		}
		list = append(list, w)
	}
	return list, nil
}

// componentOf describes a component of a policy.
func componentOf(c adminapi.PolicyComponent) string {
	text := fmt.Sprintf("%s by %s", strings.TrimSpace(c.Name+" "+c.Version), c.Runtime)
	if image := c.Artifact.Image; image != "" {
		text += " from " + image
	}
	if c.Lockstep {
		text += ", in lockstep: " + inForceOf(c)
	}
	return text
}

// inForceOf says which version of a component the hosts of its policy run.
func inForceOf(c adminapi.PolicyComponent) string {
	switch f := c.InForce; {
	case f == nil:
		return "no version is in force until a rollout in lockstep"
	case f.Changing && f.Version == "":
		return "a rollout in lockstep is bringing the first version"
	case f.Changing:
		return f.Version + " is in force, and a rollout in lockstep is changing that"
	default:
		return f.Version + " is in force"
	}
}

// exampleComponents is a file of components with every key explained.
//
//go:embed example/components.yaml
var exampleComponents string

// componentsFile is what such a file holds.
type componentsFile struct {
	Components *[]adminapi.PolicyComponent `json:"components"`
}

func (a *client) newPoliciesUpdate() *cobra.Command {
	var (
		components          string
		windows             []string
		example, force, yes bool
	)
	cmd := &cobra.Command{
		Use:   "update ID [--components FILE] [--upgrade-window WINDOW]...",
		Short: "Replace the components that a policy's agents run, or when they are upgraded automatically",
		Long: `Replace the components of a policy by those of a file. Its agents get the list at once.

Where a component has no version and the file names one, that version is installed, by a
rollout that the server starts. A version that is installed does not change: upgrade it
with a rollout, or with muster components upgrade.

A component with lockstep runs on all hosts of the policy in one version, the one that is in
force. Only a rollout in lockstep changes it, and the first one begins that. A host that comes
back with another version is held: it does not start the component, and the server upgrades
it. The file cannot set which version is in force, and a change of the policy keeps it.

A component that the file leaves out is managed no more. The agents stop a process of
it; a systemd unit and a container go on. Where agents run one, the command says on how
many, and asks for confirmation if standard input is a terminal.

--upgrade-window replaces the times at which the agents are upgraded to the versions that the
policy requires. A window has days, times and a zone; without days it is every day, and without
a zone in UTC.`,
		Example: `  muster policies update --example > components.yaml
  muster policies update web --components components.yaml
  muster policies update web --upgrade-window "mon,tue,wed 22:00-04:00 Europe/Berlin"
  muster policies update web --upgrade-window always`,
		Args: func(cmd *cobra.Command, args []string) error {
			if example {
				return noArgs(cmd, args)
			}
			return oneArg("the policy's id")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if example {
				_, err := io.WriteString(cmd.OutOrStdout(), exampleComponents)
				return err
			}
			if components == "" && len(windows) == 0 {
				return &usageError{errors.New("want --components FILE (`muster policies update --example` prints one) or --upgrade-window")}
			}
			req := adminapi.UpdatePolicyRequest{PolicyRequest: adminapi.PolicyRequest{Force: &force}}
			if len(windows) > 0 {
				list, err := parseWindows(windows)
				if err != nil {
					return err
				}
				req.UpgradeWindows = &list
			}
			file := yamlFile{name: components, what: "list of components", example: "muster policies update --example"}
			if components != "" {
				var given componentsFile
				if err := file.read(cmd, &given); err != nil {
					return err
				}
				if given.Components == nil {
					return fmt.Errorf("%s: components is missing: write `components: []` if the agents are to run none", file.name)
				}
				req.Components = given.Components
			}
			was, err := ask(cmd.Context(), a, adminapi.GetPolicy, nil, args[0])
			if err != nil {
				return err
			}
			var dropped []string
			if req.Components != nil {
				if dropped, err = a.dropped(cmd.Context(), args[0], deref(was.Item.Components), *req.Components); err != nil {
					return err
				}
			}
			if len(dropped) > 0 && !yes && components != "-" && isTerminal(cmd.InOrStdin()) {
				if err := confirm(cmd, strings.Join(dropped, "\n")+"\nChange the policy "+args[0]+"?", "the policy "+args[0]+" is not changed"); err != nil {
					return err
				}
			}
			// A change has to give these too.
			req.Name, req.Namespace, req.InactivityTimeout = was.Item.Name, was.Item.Namespace, was.Item.InactivityTimeout
			got, err := call(cmd.Context(), a, adminapi.UpdatePolicy, req, args[0])
			if err != nil {
				return file.locate(err)
			}
			return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
				list := deref(got.Item.Components)
				fmt.Fprintf(w, "%s has revision %d with %s; its %s now\n", got.Item.Id, got.Item.Revision, counted(len(list), "component"), countedAs(got.Item.Agents, "agent gets it", "agents get it"))
				if len(windows) > 0 {
					fmt.Fprintln(w, "automatic upgrades begin "+inWindows(deref(got.Item.UpgradeWindows)))
				}
				if components == "" {
					return
				}
				for _, text := range append(dropped, installs(got.Item)...) {
					fmt.Fprintln(w, text)
				}
			})
		},
	}
	cmd.Flags().StringVar(&components, "components", "", "YAML file with the components, or - for standard input")
	cmd.Flags().StringArrayVar(&windows, "upgrade-window", nil, `when agents are upgraded to the required versions, such as "mon,tue 22:00-04:00 Europe/Berlin"; can be repeated; always: at any time`)
	cmd.Flags().BoolVar(&example, "example", false, "print such a file with every key explained, and exit")
	cmd.Flags().BoolVar(&force, "force", false, "change even a managed policy")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "leave out components that run without asking for confirmation")
	return cmd
}

// dropped says what happens to the components of the policy that the new list leaves out and
// agents run.
func (a *client) dropped(ctx context.Context, policy string, was, now []adminapi.PolicyComponent) (texts []string, err error) {
	left := slices.DeleteFunc(slices.Clone(was), func(c adminapi.PolicyComponent) bool {
		return slices.ContainsFunc(now, func(n adminapi.PolicyComponent) bool { return n.Name == c.Name })
	})
	if len(left) == 0 {
		return nil, nil
	}
	running, err := ask(ctx, a, adminapi.ListComponents, url.Values{"kuery": {fmt.Sprintf("policy_id: %q", policy)}})
	if err != nil {
		return nil, err
	}
	for _, c := range left {
		hosts := 0
		for _, r := range running.Items {
			if r.Name != c.Name {
				continue
			}
			hosts = r.Agents
			for _, v := range r.Versions {
				if v.Version == "" {
					hosts -= v.Agents
				}
			}
		}
		if hosts == 0 {
			continue
		}
		what := "goes on and is managed no more"
		if c.Runtime == "process" {
			what = "is stopped"
		}
		texts = append(texts, fmt.Sprintf("%s is left out: it %s on %s", c.Name, what, counted(hosts, "host")))
	}
	return texts, nil
}

// installs says what the server does by itself for the components of a policy. It leaves managed
// policies alone.
func installs(p adminapi.Policy) (texts []string) {
	if p.IsManaged {
		return nil
	}
	for _, c := range deref(p.Components) {
		v := c.Version
		if f := c.InForce; f != nil && f.Version != "" {
			v = f.Version // it wins over the version of the file
		}
		if v != "" {
			texts = append(texts, fmt.Sprintf("%s %s is installed where no version of it is, by an automatic rollout; a version that is installed does not change", c.Name, v))
		}
	}
	return texts
}

func inactiveAfter(seconds int) string {
	if seconds == 0 {
		return "never"
	}
	return fmt.Sprintf("after %s of silence", time.Duration(seconds)*time.Second)
}
