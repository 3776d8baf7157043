package process

import "github.com/belaydev/belay/internal/host"

// Members lists the processes of a run: all processes of its user if it has its own, else those
// that are found by its supervisor, its cgroup and its mark. Supervisors may be among them.
func Members(run string, user *host.User) (pids []int, err error) {
	if user != nil {
		for _, s := range processesOf(user.UID) {
			pids = append(pids, s.PID)
		}
		return pids, nil
	}
	all, err := find(func(id string) bool { return id == run })
	for _, t := range all {
		pids = append(pids, t.PID)
	}
	return pids, err
}
