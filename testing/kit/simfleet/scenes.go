package simfleet

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// prepare writes what the agents need: people, policies, keys and packages.
func (f *Fleet) prepare(ctx context.Context) error {
	if err := f.addPeople(ctx); err != nil {
		return err
	}
	if err := f.publishRoot(ctx); err != nil {
		return err
	}
	if err := f.publish(ctx, "", older, current, broken, newest); err != nil {
		return err
	}
	if err := f.publish(ctx, collectorComponent, "1.8.0", "1.9.0"); err != nil {
		return err
	}
	if err := f.publish(ctx, webComponent, "3.1.0", "3.2.0"); err != nil {
		return err
	}
	for _, r := range roles {
		components := []object{}
		for _, name := range append([]string{collectorComponent}, r.components...) {
			components = append(components, object{"name": name, "runtime": "process"})
		}
		policy := object{"id": r.policy, "name": r.name, "description": r.description, "namespace": "default", "components": components}
		if err := f.post(ctx, "ann", "/api/fleet/agent_policies", policy, nil); err != nil {
			return err
		}
		if err := f.post(ctx, "ann", "/api/fleet/enrollment_api_keys", object{"policy_id": r.policy, "name": r.name}, nil); err != nil {
			return err
		}
	}
	f.say("published packages and policies")
	return nil
}

// rollout creates a rollout to a version and, unless it is to stay a draft, starts it.
func (f *Fleet) rollout(ctx context.Context, as, why string, plan object, start bool) error {
	var made, preview struct {
		Item struct {
			ID   string `json:"id"`
			Hash string `json:"hash"`
		} `json:"item"`
	}
	if err := f.post(ctx, as, "/api/v1/rollouts", object{"plan": plan, "why": why}, &made); err != nil {
		return err
	}
	id := made.Item.ID
	if !start {
		return nil
	}
	if err := f.post(ctx, as, "/api/v1/rollouts/"+id+"/preview?max_items=0", nil, &preview); err != nil {
		return err
	}
	return f.post(ctx, as, "/api/v1/rollouts/"+id+"/start", object{"hash": preview.Item.Hash, "accept_drift": true, "why": why}, nil)
}

// early selects the live hosts of a policy.
func early(policy string) object {
	return object{"policies": []string{policy}, "labels": object{"ring": []string{"early"}}}
}

// guards sets what restrains rollouts, and what people have saved.
func (f *Fleet) guards(ctx context.Context) error {
	day := func(n int, hour int) string {
		return time.Now().UTC().Truncate(24 * time.Hour).Add(time.Duration(n*24+hour) * time.Hour).Format(time.RFC3339)
	}
	for _, r := range []struct {
		as, method, path string
		body             object
	}{
		{"ben", http.MethodPost, "/api/v1/freezes", object{"name": "Sale of the year", "from": day(3, 6), "to": day(6, 6), "why": "CHG-4001"}},
		{"ben", http.MethodPost, "/api/v1/freezes", object{"name": "End of the year", "from": day(24, 0), "to": day(36, 0), "why": "holidays"}},
		{"ben", http.MethodPut, "/api/v1/exposure", object{"enabled": true, "percent": 60, "healthy_hours": 24, "per": []object{{"label": "site", "percent": 80}}, "why": "no version on more than 60 % of the hosts within a day"}},
		{"ann", http.MethodPost, "/api/v1/views", object{"page": "agents", "name": "Rolled back", "search": "kuery=progress%3Arolled_back"}},
		{"ann", http.MethodPost, "/api/v1/views", object{"page": "agents", "name": "Critical and not healthy", "search": "kuery=tags%3Acritical%20and%20not%20health%3Ahealthy"}},
		{"ben", http.MethodPost, "/api/v1/views", object{"page": "rollouts", "name": "Running or paused", "search": "state=running&state=paused"}},
		{"ben", http.MethodPost, "/api/v1/views", object{"page": "audit", "name": "What ann did", "search": "actor=ann"}},
	} {
		if err := f.api(ctx, r.as, r.method, r.path, r.body, nil); err != nil {
			return err
		}
	}
	return nil
}

// play lets people do what the pages are to show.
func (f *Fleet) play(ctx context.Context) error {
	if err := f.guards(ctx); err != nil {
		return err
	}
	count := func(n int) object { return object{"count": n} }
	for _, r := range []struct {
		as, why string
		plan    object
		start   bool
	}{
		{"ann", "CHG-4031", object{
			"name": "CI workers to " + newest, "version": newest, "select": early("ci"), "strategy": object{"kind": "all_at_once"},
			"failure": count(50), "health": object{"wait": f.wait(10 * time.Second)},
		}, true},
		{"ben", "CHG-4040: the branches need the fix of the memory leak", object{
			"name": "Edge gateways to " + broken, "version": broken, "select": early("edge"), "strategy": object{"kind": "rolling", "batch_size": f.batch(4)},
			"failure": count(2), "health": object{"wait": f.wait(20 * time.Second)},
		}, true},
		{"ann", "CHG-4042", object{
			"name": "Databases to " + newest, "version": newest, "select": early("db"),
			"strategy": object{"kind": "canary", "batch_size": f.batch(2), "canary": object{"size": 1, "approval": true}}, "health": object{"wait": f.wait(60 * time.Second)},
		}, true},
		{"ann", "CHG-4044: first half of the web servers", f.webPlan(newest), true},
		{"ben", "", object{
			"name": "Workstations to " + newest, "version": newest, "select": object{"policies": []string{"desk"}},
			"strategy": object{"kind": "canary", "canary": object{"percent": 2}}, "pace": object{"windows": []object{{"from": "20:00", "to": "06:00"}}},
		}, false},
	} {
		if err := f.rollout(ctx, r.as, r.why, r.plan, r.start); err != nil {
			return fmt.Errorf("rollout %s: %w", r.plan["name"], err)
		}
	}
	if err := f.declare(ctx); err != nil {
		return err
	}
	f.say("rollouts are under way")
	return nil
}

// wait is a time of a plan, at the fleet's pace.
func (f *Fleet) wait(d time.Duration) string {
	return max(time.Second, time.Duration(float64(d)*f.options.Pace)).String()
}

// batch is the size of a batch of n hosts. It grows with the fleet beyond 240 live hosts, since a
// rollout has 1,000 batches at most.
func (f *Fleet) batch(n int) int { return max(n, n*f.options.Live/240) }

// webTitle begins the names of rollouts of the web servers.
const webTitle = "Web servers to "

// webPlan is the plan of the rollout that people watch for longest.
func (f *Fleet) webPlan(version string) object {
	return object{
		"name": webTitle + version, "version": version, "select": early("web"), "failure": object{"count": 8}, "health": object{"wait": f.wait(40 * time.Second)},
		"strategy": object{"kind": "canary", "batch_size": f.batch(2), "canary": object{"size": 2, "pick": "stratified"}}, "pace": object{"soak": f.wait(2 * time.Minute)},
		"limits": object{"max_parallel": f.batch(2), "per": []object{{"label": "site", "max": f.batch(2)}}},
	}
}

// declare declares which versions some hosts run, and drafts a group of rollouts.
func (f *Fleet) declare(ctx context.Context) error {
	declared := func(name string, selector, spec object) error {
		spec["selector"] = selector
		body := object{"apiVersion": "muster.dev/v1alpha2", "kind": "Fleet", "metadata": object{"name": name, "labels": object{"team": name}}, "spec": spec}
		return f.api(ctx, "ci", http.MethodPut, "/api/v1/fleets/"+name+"?why=merge+request+212", body, nil)
	}
	err := declared("workstations", early("desk"), object{
		"agent": object{"version": newest}, "strategy": object{"kind": "rolling", "batch_size": f.batch(1)},
		"health": object{"wait": f.wait(30 * time.Second)}, "pace": object{"soak": f.wait(time.Minute)}, "failure": object{"count": 4},
	})
	if err != nil {
		return err
	}
	err = declared("branches", object{"policies": []string{"edge"}, "labels": object{"ring": []string{"main"}}}, object{
		"agent": object{"version": newest}, "strategy": object{"kind": "canary", "canary": object{"size": 3}}, "paused": true,
	})
	if err != nil {
		return err
	}
	member := func(policy, component string) object {
		return object{"select": early(policy), "component": component, "strategy": object{"kind": "rolling", "batch_size": f.batch(2)}, "health": object{"wait": f.wait(30 * time.Second)}}
	}
	var made struct {
		Item struct{ ID string }
	}
	err = f.post(ctx, "ben", "/api/v1/rollout-groups", object{"why": "CHG-4050", "plan": object{
		"name": "Autumn release", "description": "Collector first, then the web servers", "failure_policy": "manual",
		"desired_versions": object{"ci-collector": "1.9.0", "db-collector": "1.9.0", "web": "3.2.0"},
		"members": []object{
			{"name": "ci-collector", "plan": member("ci", collectorComponent), "soak": "10m"},
			{"name": "db-collector", "plan": member("db", collectorComponent), "soak": "10m"},
			{"name": "web", "plan": member("web", webComponent)},
		},
	}}, &made)
	f.group = made.Item.ID
	return err
}
