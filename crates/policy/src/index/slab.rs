//! Numbered places for values, reused after a removal.

use std::marker::PhantomData;

/// A number of a place, one type per kind of value.
pub(crate) trait Id: Copy {
    /// From the place's position.
    fn from_index(index: u32) -> Self;
    /// The place's position.
    fn index(self) -> usize;
}

/// Declares id types.
macro_rules! ids {
    ($($(#[$doc:meta])* $vis:vis $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis struct $name(pub u32);

        impl $crate::index::slab::Id for $name {
            fn from_index(index: u32) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
pub(crate) use ids;

/// Values by number; numbers of removed ones are given out again.
#[derive(Debug)]
pub(crate) struct Slab<I, T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    id: PhantomData<I>,
}

impl<I, T> Default for Slab<I, T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> Slab<I, T> {
    /// Gives a value a number.
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return I::from_index(place);
        }
        let place = u32::try_from(self.places.len()).expect("memory ends before numbers do");
        self.places.push(Some(value));
        I::from_index(place)
    }

    /// Takes a value out.
    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let value = self.places.get_mut(id.index())?.take()?;
        self.free.push(u32::try_from(id.index()).expect("the place was numbered with 32 bits"));
        Some(value)
    }

    /// The value of a number.
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        self.places.get(id.index())?.as_ref()
    }

    /// All values in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        (0u32..)
            .zip(&self.places)
            .filter_map(|(place, value)| Some((I::from_index(place), value.as_ref()?)))
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<I: Id, T> std::ops::Index<I> for Slab<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        self.places[id.index()].as_ref().expect("ids are dropped with their values")
    }
}

impl<I: Id, T> std::ops::IndexMut<I> for Slab<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.places[id.index()].as_mut().expect("ids are dropped with their values")
    }
}
