package httpapi

func (a *api) runs() {}
