package process

import "github.com/belaydev/belay/internal/host"

// Members lists the processes of a run. If the run has its own user, these are all processes of
// that user; else they are found by the run's supervisor, cgroup and mark. The list may contain
// supervisors.
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
